"""What the recipes made the last time, for as long as nothing that goes into it has changed: to make it takes half a minute."""

import shutil
import sys
from collections.abc import Callable
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RECIPES = ("app/local/models/*.py", "model_repository/heads/*", "model_repository/labels/*", "requirements/models.txt")
LIBRARIES = ("numpy", "onnx", "onnxruntime", "protobuf")


class Kept:
    """Below `home`; what other recipes, sources or libraries made is thrown away."""

    def __init__(self, home: Path) -> None:
        self._folder = home / "kept" / _ingredients()
        for other in self._folder.parent.glob("*"):
            if other != self._folder:
                shutil.rmtree(other, ignore_errors=True)  # another of pytest's workers may do so too
        self._folder.mkdir(parents=True, exist_ok=True)

    def get(self, name: str, make: Callable[[], bytes]) -> bytes:
        file = self._folder / name.replace("/", "-")
        if not file.exists():
            unfinished = file.with_suffix(".unfinished")
            unfinished.write_bytes(make())
            unfinished.rename(file)
        return file.read_bytes()


def _ingredients() -> str:
    digest = sha256(f"{sys.version} {[version(library) for library in LIBRARIES]}".encode())
    for path in sorted(path for pattern in RECIPES for path in ROOT.glob(pattern)):
        digest.update(f"{path.relative_to(ROOT)} {path.stat().st_size}\n".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]
