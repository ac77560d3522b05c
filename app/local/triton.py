"""A real Triton without a container: the server that comes in NVIDIA's pytriton wheel (2.51, that is 24.10), on CPU."""

import os
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from secrets import token_hex

from app.local.address import Address
from app.local.health import is_well
from app.local.machine import find_library, library_directories, library_name
from app.local.part import Part
from app.local.trouble import Exit, Trouble

STUB = "triton_python_backend_stub"


@dataclass(frozen=True, slots=True)
class Ports:
    http: Address
    grpc: Address
    metrics: Address

    @classmethod
    def free(cls) -> "Ports":
        http, grpc, metrics = Address.several_free(3)
        return cls(http, grpc, metrics)


@dataclass(frozen=True, slots=True)
class Installation:
    """A Triton laid out so that it runs: `root` holds the server and the backend, `libraries` what they load."""

    root: Path
    libraries: tuple[Path, ...]

    @property
    def server(self) -> Path:
        return self.root / "bin" / "tritonserver"

    @property
    def backends(self) -> Path:
        return self.root / "backends"


def package(name: str = "pytriton") -> Path:
    """The installed wheel's folder. The package is only looked up: importing it would load far more than we need."""
    spec = find_spec(name)
    for folder in spec.submodule_search_locations or () if spec else ():
        if Path(folder, "tritonserver", "bin", "tritonserver").is_file():
            return Path(folder)
    raise Trouble(
        "There is no Triton: the package nvidia-pytriton is not installed.",
        'Say `make run`, or `pip install "conch[local]"`.',
        Exit.UNSUITABLE,
    )


def install(home: Path, wheel: Path | None = None) -> Installation:
    """Lays out the wheel's server below `home`, beside the stub that fits the running interpreter. The wheel stays as it is."""
    wheel = wheel or package()
    origin = wheel / "tritonserver"
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    root = home.resolve() / "triton" / f"{version('nvidia-pytriton')}-python{python}"
    _place(origin / "bin" / "tritonserver", root / "bin" / "tritonserver")
    _place(origin / "python_backend_stubs" / python / STUB, root / "backends" / "python" / STUB)
    for name in ("libtriton_python.so", "triton_python_backend_utils.py"):
        _place(origin / "backends" / "python" / name, root / "backends" / "python" / name)
    library = find_library(library_name(), library_directories())
    if library is None:
        raise Trouble(f"{library_name()} was not found.", "Install this Python's shared library.", Exit.UNSUITABLE)
    return Installation(root, (wheel.parent / "nvidia_pytriton.libs", library))


def triton(
    installation: Installation,
    repositories: Sequence[Path],
    ports: Ports,
    directory: Path,
    *,
    traces: str | None = None,
    extra: Sequence[str] = (),
    name: str = "triton",
) -> Part:
    """`traces` is where Triton sends its spans (OTLP over HTTP): those of the requests that carry a trace. Off by default: this
    release crashes under load while it traces."""
    shared_memory = f"conch-{os.getpid()}-{token_hex(4)}"
    return Part(
        name=name,
        command=(*_command(installation, repositories, ports, shared_memory), *_tracing(traces), *extra),
        environment=_environment(installation),
        directory=directory,  # kept empty: it comes first on the steps' sys.path
        is_ready=lambda: is_ready(ports.http),
        within=120,
        # It looks only once a second whether it may exit. Nobody asks it anything by then, and what it leaves is swept: only
        # spans are worth the wait.
        grace=10 if traces else 0,
        shared_memory=shared_memory,
        litter=Path("/tmp/python_env_"),  # noqa: S108  (Triton's choice: it stands in its code)
        indivisible=True,  # since 24.06 Triton does not start a dead stub again, and still says that it is ready
    )


async def is_ready(http: Address) -> bool:
    return await is_well(f"{http.url}/v2/health/ready")


def _command(installation: Installation, repositories: Sequence[Path], ports: Ports, shared_memory: str) -> tuple[str, ...]:
    return (
        str(installation.server),
        *(f"--model-repository={repository.resolve()}" for repository in repositories),
        f"--backend-directory={installation.backends}",
        f"--backend-config=python,shm-region-prefix-name={shared_memory}",
        "--model-config-name=cpu",
        "--disable-auto-complete-config",
        "--allow-gpu-metrics=false",
        f"--http-address={ports.http.host}",
        f"--http-port={ports.http.port}",
        f"--grpc-address={ports.grpc.host}",
        f"--grpc-port={ports.grpc.port}",
        f"--metrics-address={ports.metrics.host}",
        f"--metrics-port={ports.metrics.port}",
        "--exit-timeout-secs=5",
    )


def _tracing(url: str | None) -> tuple[str, ...]:
    # A rate of 0 traces only what comes with a trace; the level is off unless it is said.
    options = ("mode=opentelemetry", "rate=0", "level=TIMESTAMPS", f"opentelemetry,url={url}")
    return tuple(f"--trace-config={option}" for option in options) if url else ()


def _environment(installation: Installation) -> dict[str, str]:
    # The stub asks the first python3 on PATH for its sys.path and ignores PYTHONPATH.
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return inherited | {
        "PATH": os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath))),
        "LD_LIBRARY_PATH": os.pathsep.join(map(str, installation.libraries)),
    }


def _place(origin: Path, target: Path) -> None:
    """A link where the wheel's file may be executed; an executable copy where an installer has dropped that bit."""
    if not origin.is_file():
        what = f"The package nvidia-pytriton has no {origin.name} for this machine or this Python."
        raise Trouble(what, "Remove .venv and say `make run` again.", Exit.UNSUITABLE)
    target.parent.mkdir(parents=True, exist_ok=True)
    aside = target.with_name(f"{target.name}.{token_hex(4)}")  # renamed into place: another stack may be starting from there
    if os.access(origin, os.X_OK) or origin.suffix:
        aside.symlink_to(origin)
    else:
        shutil.copyfile(origin, aside)
        aside.chmod(0o755)
    aside.replace(target)
