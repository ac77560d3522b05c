"""Whether what is committed of the API is what the code says, and breaks nobody who was not told.

`docs/openapi-released.json` is the document of the last release. A change that breaks its clients must be declared: the
sentence that is said here stands, word for word, in CHANGELOG.md.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

from app.api.document import Json, serialized
from app.api.openapi_30 import in_3_0
from app.main import document_of
from tests.document.breaking import breaking

ROOT = Path(__file__).resolve().parents[2]


def committed(document: Json, root: Path = ROOT) -> dict[Path, bytes]:
    docs = root / "docs"
    return {
        docs / "openapi.json": serialized(document),
        docs / "openapi-3.0.json": serialized(in_3_0(document)),
        root / "app" / "api" / "pages" / "errors.md": (docs / "errors.md").read_bytes(),
    }


def faults(document: Json, root: Path = ROOT) -> Iterator[str]:
    for file, content in committed(document, root).items():
        if not file.exists() or file.read_bytes() != content:
            yield f"{file.relative_to(root)} is not what the code says: run make openapi"
    declared = " ".join((root / "CHANGELOG.md").read_text("utf-8").split())
    released = json.loads((root / "docs" / "openapi-released.json").read_bytes())
    for sentence in breaking(released, document):
        if sentence not in declared:
            yield f"this breaks clients of the last release, and CHANGELOG.md does not say so: {sentence}"


if __name__ == "__main__":
    current = document_of()
    if sys.argv[1:] == ["--write"]:
        for name, text in committed(current).items():
            name.write_bytes(text)
    found = list(faults(current))
    sys.exit("\n".join(found) if found else 0)
