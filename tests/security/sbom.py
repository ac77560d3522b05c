"""What is installed where, as CycloneDX: a bill for each lock. `python -m tests.security.sbom FOLDER` writes them.

They are read from the locks alone, so that they name what every machine installs, and the same bytes come out each time.
"""

import json
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_URL, uuid5

from app import __version__

ROOT = Path(__file__).resolve().parents[2]
BILLS = {"gateway": "runtime.txt", "triton-steps": "steps.txt", "models": "models.txt"}
_PIN = re.compile(
    r"^([A-Za-z0-9._-]+)(?:\[[^]]*\])?==(\S+)((?: ;[^\\\n]*)?)((?: *\\\n +--hash=sha256:[0-9a-f]{64})*)", re.MULTILINE
)


@dataclass(frozen=True, slots=True)
class Pin:
    """A line of a lock; `marker` says where it is installed, and is empty where that is everywhere."""

    name: str
    version: str
    marker: str
    hashes: tuple[str, ...]

    @property
    def purl(self) -> str:
        return f"pkg:pypi/{re.sub(r'[-_.]+', '-', self.name).lower()}@{self.version.replace('+', '%2B')}"


def pins(lock: Path) -> Iterator[Pin]:
    for name, version, marker, hashes in _PIN.findall(lock.read_text("utf-8")):
        yield Pin(name, version, marker.removeprefix(" ;").strip(), tuple(re.findall(r"sha256:([0-9a-f]{64})", hashes)))


def bill(name: str) -> dict[str, Any]:
    lock = ROOT / "requirements" / BILLS[name]
    conch = {"type": "application", "bom-ref": f"conch-{name}", "name": f"conch-{name}", "version": __version__}
    components = [_component(pin) for pin in pins(lock)]
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid5(NAMESPACE_URL, lock.read_text('utf-8'))}",
        "version": 1,
        "metadata": {"component": {**conch, "licenses": [{"license": {"id": "Apache-2.0"}}]}},
        "components": components,
        "dependencies": [{"ref": conch["bom-ref"], "dependsOn": [component["bom-ref"] for component in components]}],
    }


def _component(pin: Pin) -> dict[str, Any]:
    hashes = [{"alg": "SHA-256", "content": content} for content in pin.hashes]
    component: dict[str, Any] = {
        "type": "library",
        "bom-ref": pin.purl,
        "name": pin.name,
        "version": pin.version,
        "purl": pin.purl,
        "externalReferences": [{"type": "distribution", "url": pin.purl, "hashes": hashes}],
    }
    if expression := _license(pin.name):
        component["licenses"] = [{"expression": expression}]
    if pin.marker:
        component["properties"] = [{"name": "conch:marker", "value": pin.marker}]
    return component


def _license(name: str) -> str | None:
    """As the package says it by SPDX; what it says otherwise is for people to read."""
    try:
        return metadata(name)["License-Expression"]
    except (PackageNotFoundError, KeyError):
        return None


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name in BILLS:
        file = folder / f"{name}.cdx.json"
        file.write_text(json.dumps(bill(name), indent=1) + "\n", "utf-8")
        sys.stdout.write(f"{file}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
