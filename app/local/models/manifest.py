"""What a built repository consists of, written down beside it."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from app.local.models.checksum import files_of, sha256_of

FILE = "manifest.json"


@dataclass(frozen=True, slots=True)
class Manifest:
    """`source` is the fingerprint of all that the repository was built from, `files` each file's SHA-256 by its path."""

    source: str
    files: dict[str, str]

    @classmethod
    def of(cls, repository: Path, source: str, known: dict[str, str]) -> Self:
        """`known` spares the weights: their checksums were taken when they were made."""
        return cls(source, {path: known.get(path) or sha256_of(repository / path) for path in _paths(repository)})

    @classmethod
    def parse(cls, text: str | bytes) -> Self | None:
        try:
            return cls(**json.loads(text))
        except (ValueError, TypeError):
            return None

    @classmethod
    def read(cls, repository: Path) -> Self | None:
        try:
            return cls.parse((repository / FILE).read_bytes())
        except OSError:
            return None

    def write(self, repository: Path) -> None:
        (repository / FILE).write_text(json.dumps(asdict(self), indent=1) + "\n")

    def is_complete(self, repository: Path) -> bool:
        return all((repository / path).is_file() for path in self.files)


def verify(repository: Path) -> list[str]:
    """What differs from the manifest, a sentence each; nothing where all is well. Reads every byte."""
    manifest = Manifest.read(repository)
    if manifest is None:
        return [f"{repository} has no {FILE} that can be read: it is not a repository that `conch models build` has made."]
    expected, found = manifest.files, _paths(repository)
    return [
        *(f"{path} is missing." for path in sorted(expected.keys() - found)),
        *(f"{path} does not belong there." for path in sorted(found - expected.keys())),
        *(f"{path} has changed." for path in sorted(found & expected.keys()) if sha256_of(repository / path) != expected[path]),
    ]


def _paths(repository: Path) -> set[str]:
    return {file.relative_to(repository).as_posix() for file in files_of(repository)} - {FILE}
