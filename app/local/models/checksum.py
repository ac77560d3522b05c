"""SHA-256 over files and folders."""

import hashlib
from collections.abc import Iterable
from pathlib import Path


def sha256_of(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def fingerprint(folders: Iterable[Path]) -> str:
    """One value for all files below some folders; it changes with any of them, or with its place there."""
    lines = [f"{sha256_of(file)}  {file.relative_to(folder)}\n" for folder in folders for file in files_of(folder)]
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def files_of(folder: Path) -> list[Path]:
    """All but what Python itself leaves there when it runs a step."""
    return sorted(path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
