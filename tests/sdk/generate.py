"""Clients for Python, TypeScript and Java, each by the generator that its people use, from the committed documents."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
TOOLS = ROOT / ".venv-sdk" / "bin"
NODE_TOOLS = HERE / "node_modules" / ".bin"
NDJSON = "application/x-ndjson"
DOCUMENT, OLDER_DOCUMENT = ROOT / "docs" / "openapi.json", ROOT / "docs" / "openapi-3.0.json"


class Unmade(Exception):
    """A client can't be made here; the message says why."""


def python(folder: Path) -> None:
    """The package `conch`, over httpx and attrs."""
    options = ("--config", HERE / "python.yaml", "--meta", "setup", "--output-path", folder, "--overwrite")
    with TemporaryDirectory() as drawer:
        document = _kept(Path(drawer), _with_files(json.loads(DOCUMENT.read_bytes()), "request", "answer"))
        _run(TOOLS / "openapi-python-client", "generate", "--path", document, *options)


def typescript(folder: Path) -> None:
    """The types of `openapi-fetch`, a client of 6 KB."""
    _needed("npm", "Node 20 or more")
    if not NODE_TOOLS.exists():
        _run("npm", "ci", "--silent", "--prefix", HERE)
    folder.mkdir(parents=True, exist_ok=True)
    # Else each member with a default would have to be given in a request.
    _run(NODE_TOOLS / "openapi-typescript", DOCUMENT, "--output", folder / "conch.d.ts", "--default-non-nullable", "false")


def java(folder: Path) -> None:
    """The packages `conch`, `conch.api` and `conch.model`, with a pom.xml, over java.net.http and Jackson."""
    _needed("java", "a JDK of 17 or more")
    with TemporaryDirectory() as drawer:
        document = _kept(Path(drawer), _with_files(json.loads(OLDER_DOCUMENT.read_bytes()), "answer"))
        options = ("--input-spec", document, "--config", HERE / "java.yaml", "--output", folder)
        _run(TOOLS / "openapi-generator-cli", "generate", *options, "--minimal-update")


def _with_files(document: dict[str, Any], *parts: str) -> dict[str, Any]:
    """NDJSON as these generators know it: Python's takes nothing else for bytes, and Java's would parse what is no file."""
    for operation in (operation for methods in document["paths"].values() for operation in methods.values()):
        contents = {"request": operation.get("requestBody", {}), "answer": operation["responses"]["200"]}
        for part in parts:
            lines = contents[part].get("content", {}).get(NDJSON)
            if lines is not None:
                lines["schema"]["format"] = "binary"
    return document


def _kept(folder: Path, content: dict[str, Any]) -> Path:
    file = folder / "openapi.json"
    file.write_text(json.dumps(content), encoding="utf-8")
    return file


def _needed(command: str, what: str) -> None:
    if shutil.which(command) is None:
        raise Unmade(f"{command} is missing: this client needs {what}")


def _run(*command: str | Path) -> None:
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        raise Unmade(f"{Path(command[0]).name} failed:\n{done.stdout}")


def main(folder: Path) -> int:
    missing = 0
    for name, make in (("python", python), ("typescript", typescript), ("java", java)):
        try:
            make(folder / name)
            print(f"{name}: {folder / name}")  # noqa: T201
        except Unmade as unmade:
            missing += 1
            print(f"{name}: {unmade}", file=sys.stderr)  # noqa: T201
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
