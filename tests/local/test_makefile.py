"""The Makefile, on machines where something is missing."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.conftest import ROOT


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """What make needs before anything is installed, and nothing that was made."""
    shutil.copy(ROOT / "Makefile", tmp_path)
    shutil.copytree(ROOT / "app" / "local", tmp_path / "app" / "local")
    shutil.copy(ROOT / "app" / "__init__.py", tmp_path / "app")
    (tmp_path / "requirements").mkdir()
    return tmp_path


def make(checkout: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    own = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}  # the tests may run below make
    return subprocess.run(("make", *arguments), cwd=checkout, env=own, capture_output=True, text=True, check=False)


def stand_in(checkout: Path, name: str, script: str) -> str:
    program = checkout / name
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return str(program)


def test_help_lists_every_command(checkout: Path) -> None:
    listed = {line.split()[0] for line in make(checkout).stdout.splitlines()}
    assert listed == {
        *(
            "help",
            "run",
            "models",
            "test",
            "test-deploy",
            "test-sdk",
            "sbom",
            "check",
            "fix",
            "bench",
            "openapi",
            "sdk",
            "lock",
            "clean",
        )
    }


def test_without_a_python_that_runs_it_says_what_to_install(checkout: Path) -> None:
    shim = stand_in(checkout, "shim", "echo 'pyenv: python3.12: command not found' >&2; exit 127")
    result = make(checkout, ".venv/bin/python", f"PYTHON={shim} /nowhere/python3.11")
    assert result.returncode != 0
    assert f"No Python 3.11 or 3.12 runs here (tried: {shim} /nowhere/python3.11)." in result.stderr
    assert "apt install python3.11 python3.11-venv libpython3.11" in result.stderr


def test_a_python_that_lacks_something_is_passed_over_and_its_lack_is_said(checkout: Path) -> None:
    lack = "Python 3.11 has no shared library here"
    lacking = stand_in(checkout, "lacking", f'[ "$1" = -c ] && exit 0; echo "{lack}" >&2; exit 3')
    assert f"{lacking}: {lack}" in make(checkout, ".venv/bin/python", f"PYTHON={lacking}").stderr

    right = stand_in(checkout, "right", f'[ "$2" = venv ] && mkdir -p .venv/bin && touch .venv/bin/python; : {lack}')
    result = make(checkout, ".venv/bin/python", f"PYTHON={lacking} {right}")
    assert result.returncode == 0, result.stderr
    assert (checkout / ".venv" / "bin" / "python").exists()
    assert lack not in result.stderr


def test_without_a_network_it_says_so_and_installs_again_the_next_time(checkout: Path) -> None:
    python = checkout / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    (checkout / "requirements" / "local.txt").touch()
    stand_in(checkout, ".venv/bin/python", "echo 'No matching distribution found' >&2; exit 1")
    for _ in range(2):
        result = make(checkout, ".venv/local")
        assert result.returncode != 0
        assert "there is no way to the package index" in result.stderr


def test_nothing_is_installed_again_until_a_lock_changes(checkout: Path) -> None:
    (checkout / ".venv" / "bin").mkdir(parents=True)
    lock = checkout / "requirements" / "local.txt"
    lock.touch()
    stand_in(checkout, ".venv/bin/python", "echo installs")
    assert [make(checkout, ".venv/local").stdout.count("installs") for _ in range(2)] == [1, 0]
    os.utime(lock, (lock.stat().st_atime, (checkout / ".venv" / "local").stat().st_mtime + 1))
    assert "installs" in make(checkout, ".venv/local").stdout
