"""What is said when the machine can't run the embedded stack."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from app.local import machine
from app.local.machine import Machine, faults, find_library, gaps, lacks_venv
from app.local.redis import server
from app.local.triton import package
from app.local.trouble import Exit, Trouble

RIGHT = Machine(
    system="Linux", architecture="x86_64", libc="glibc 2.36", python=(3, 11), library=Path("/usr/lib"), shared_memory=True
)
INSTALLED = dict.fromkeys(machine.PACKAGES, "1.26.4")


@pytest.mark.parametrize(
    ("wrong", "what", "mend"),
    [
        ({"system": "Darwin", "architecture": "arm64"}, "this is Darwin on arm64", "conch serve"),
        ({"architecture": "riscv64"}, "this is Linux on riscv64", "conch serve"),
        ({"libc": "glibc 2.31"}, "needs glibc 2.35 or newer; this system has glibc 2.31", "Debian 12"),
        ({"libc": ""}, "this system has another C library", "conch serve"),
        ({"python": (3, 13)}, "needs Python 3.11 or 3.12; this is 3.13", "PYTHON=python3.12"),
        ({"library": None}, "Python 3.11 has no shared library here (libpython3.11.so.1.0)", "apt install libpython3.11"),
        ({"shared_memory": False}, "/dev/shm is missing", "mount -t tmpfs"),
    ],
)
def test_each_fault_of_a_machine_is_said_with_a_way_out(wrong: dict[str, Any], what: str, mend: str) -> None:
    (trouble,) = faults(replace(RIGHT, **wrong))
    assert what in trouble.what
    assert mend in trouble.mend
    assert trouble.code == Exit.UNSUITABLE


@pytest.mark.parametrize(
    "change", [{}, {"architecture": "aarch64"}, {"libc": "glibc 2.35"}, {"libc": "glibc 3.0"}, {"python": (3, 12)}]
)
def test_a_right_machine_has_no_fault(change: dict[str, Any]) -> None:
    assert not list(faults(replace(RIGHT, **change)))


def test_this_machine_and_what_is_installed_here_are_right() -> None:
    machine.check()


@pytest.mark.parametrize(
    ("packages", "what"),
    [
        ({}, "Not installed: nvidia-pytriton, numpy, onnx"),
        ({name: version for name, version in INSTALLED.items() if name != "onnxruntime"}, "Not installed: onnxruntime."),
        (INSTALLED | {"numpy": "2.3.1"}, "numpy is 2.3.1"),
    ],
)
def test_missing_and_wrong_packages_are_named(packages: dict[str, str], what: str) -> None:
    (trouble,) = gaps(packages)
    assert what in trouble.what


def test_a_python_without_venv_is_told_what_to_install() -> None:
    assert not list(lacks_venv())
    (trouble,) = lacks_venv(["venv", "no_such_module"])
    assert "apt install python3.1" in trouble.mend


def test_the_shared_library_is_found_in_the_first_directory_that_holds_it(tmp_path: Path) -> None:
    for folder in ("empty", "first", "second"):
        (tmp_path / folder).mkdir()
    (tmp_path / "first" / "libpython3.11.so.1.0").touch()
    (tmp_path / "second" / "libpython3.11.so.1.0").touch()
    folders = [tmp_path / "missing", tmp_path / "empty", tmp_path / "first", tmp_path / "second"]
    assert find_library("libpython3.11.so.1.0", folders) == tmp_path / "first"
    assert find_library("libpython3.12.so.1.0", folders) is None


@pytest.mark.parametrize("look_up", [package, server])
def test_a_missing_wheel_is_said_with_a_way_out(look_up: Any) -> None:
    with pytest.raises(Trouble, match=r"There is no (Triton|Redis)") as caught:
        look_up("no_such_package")
    assert "pip install" in caught.value.mend
