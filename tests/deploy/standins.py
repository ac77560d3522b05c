"""Images in place of those that can only be pulled: the same programs, from Debian and from the packages of other tests.

They are kept from run to run under localhost/conch-standin; `podman rmi` them when they are old.
"""

import re
import shutil
import sys
import tempfile
from pathlib import Path

from app.local.redis import server as valkey
from app.local.triton import package as pytriton
from tests.deploy.engine import Engine

PYTHON = "localhost/conch-standin/python:3.11"
SERVICES = "localhost/conch-standin/services:1"
TRITON = "localhost/conch-standin/tritonserver:24.10"

# Debian's own Python stands for python:3.x-slim. Perl, which its dependencies bring, does not.
LEFT_OUT = ("doc", "man", "locale", "info")
PERL = "rm -rf $1/usr/share/perl $1/usr/lib/x86_64-linux-gnu/perl $1/usr/lib/x86_64-linux-gnu/libperl* $1/usr/bin/perl5*"


def python(engine: Engine) -> str:
    if not engine.has(PYTHON):
        with tempfile.TemporaryDirectory() as folder:
            tar = f"{folder}/root.tar"
            engine.run(("mmdebstrap", *_options(), "bookworm", tar, *_mirror()), within=600)
            engine.podman("import", tar, PYTHON, within=120)
    return PYTHON


def _options() -> list[str]:
    return [
        "--variant=minbase",
        '--aptopt=Apt::Install-Recommends "false"',
        *(f"--dpkgopt=path-exclude=/usr/share/{name}/*" for name in LEFT_OUT),
        "--include=ca-certificates,netbase,tzdata,python3,python3-venv",
        "--customize-hook=ln -s /usr/bin/python3 $1/usr/local/bin/python",
        f"--customize-hook={PERL}",
    ]


def _mirror() -> list[str]:
    """The one that apt on this machine uses."""
    files = [Path("/etc/apt/sources.list"), *Path("/etc/apt/sources.list.d").glob("*")]
    text = "\n".join(file.read_text(errors="replace") for file in files if file.is_file())
    return re.findall(r"https?://\S+/debian/?(?=\s|$)", text)[:1]


def services(engine: Engine) -> str:
    """Valkey, SeaweedFS, and a `wget` for their healthchecks."""
    if not engine.has(SERVICES):
        with tempfile.TemporaryDirectory() as folder:
            for program in (valkey(), valkey().with_name("valkey-cli"), Path(sys.executable).with_name("weed")):
                shutil.copy(program, folder)
            Path(folder, "wget").write_text(
                "#!/usr/bin/python3\nimport sys, urllib.request\nurllib.request.urlopen(sys.argv[-1], timeout=4)\n"
            )
            Path(folder, "Dockerfile").write_text(
                f"FROM {python(engine)}\nCOPY --chmod=755 valkey-server valkey-cli weed wget /usr/bin/\n"
            )
            engine.build(SERVICES, Path(folder))
    return SERVICES


def triton(engine: Engine) -> str:
    """Laid out like NVIDIA's image, as far as the project's own stage looks."""
    if not engine.has(TRITON):
        with tempfile.TemporaryDirectory() as folder:
            wheel = pytriton()
            shutil.copytree(wheel / "tritonserver" / "bin", Path(folder, "server", "bin"))
            backend = Path(folder, "server", "backends", "python")
            backend.mkdir(parents=True)
            for name in ("libtriton_python.so", "triton_python_backend_utils.py"):
                shutil.copy(wheel / "tritonserver" / "backends" / "python" / name, backend)
            shutil.copy(wheel / "tritonserver" / "python_backend_stubs" / "3.11" / "triton_python_backend_stub", backend)
            shutil.copytree(wheel.parent / "nvidia_pytriton.libs", Path(folder, "server", "lib"))
            for program in ("bin/tritonserver", "backends/python/triton_python_backend_stub"):
                Path(folder, "server", program).chmod(0o755)
            Path(folder, "Dockerfile").write_text(
                f"""
FROM {python(engine)}
RUN apt-get update && apt-get install -y --no-install-recommends libpython3.11 && python3 -m venv /opt/python
COPY server /opt/tritonserver
ENV PATH=/opt/python/bin:/opt/tritonserver/bin:/usr/bin:/bin LD_LIBRARY_PATH=/opt/tritonserver/lib
"""
            )
            engine.build(TRITON, Path(folder))
    return TRITON
