"""`conch models publish`: a built repository into a bucket, so that Triton finds a whole one there at every moment."""

import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from app.local.models.checksum import sha256_of
from app.local.models.manifest import FILE, Manifest
from app.storage.bucket import Bucket, Tick
from app.storage.failure import StorageFailed

_CONFIG = "config.pbtxt"
_ENSEMBLE = re.compile(r'^\s*platform\s*:\s*"ensemble"|^\s*ensemble_scheduling', re.MULTILINE)
_POLICY = re.compile(r"^\s*version_policy\s*:?\s*\{[^{}]*\{[^{}]*\}\s*\}", re.MULTILINE)
_NAMED = re.compile(r"^\s*version_policy\s*:?\s*\{\s*specific\b", re.MULTILINE)


class NotPublishable(Exception):
    """Nothing was written; each of `faults` is a sentence."""

    def __init__(self, faults: list[str]) -> None:
        super().__init__(*faults)
        self.faults = faults


@dataclass(frozen=True, slots=True)
class Upload:
    path: str
    size: int


@dataclass(frozen=True, slots=True)
class Publication:
    """What is to be written, in this order, and the manifest that then follows."""

    repository: Path
    pins: Mapping[str, str]
    """Configs that are published and do not say which versions are served, as they are to be while there is half of another."""
    uploads: tuple[Upload, ...]
    manifest: Manifest
    is_news: bool

    @classmethod
    def plan(cls, repository: Path, bucket: Bucket, local: Manifest | None = None) -> "Publication":
        """Reads only; `local` is the repository's own manifest, unless another one is given. A published version is never
        written again: where its files are other ones, raises `NotPublishable`.
        """
        local, there = local or Manifest.read(repository), bucket.sizes()
        if local is None:
            raise NotPublishable([f"{repository} has no {FILE}: say `conch models build` first."])
        published = _published(bucket, there)
        if faults := [*_changed_versions(local, published), *_open_versions(repository, local, published)]:
            raise NotPublishable(faults)
        # Of what an unfinished publish left, only that is sent again which is not the same.
        missing = [path for path, sha256 in local.files.items() if not _is_there(path, sha256, published, there, bucket)]
        uploads = tuple(Upload(path, (repository / path).stat().st_size) for path in in_order(repository, missing))
        manifest = Manifest(local.source, published | local.files)
        return cls(
            repository, dict(_pins(bucket, published, missing)), uploads, manifest, bool(uploads) or manifest.files != published
        )

    @property
    def size(self) -> int:
        return sum(upload.size for upload in self.uploads)

    def write(self, bucket: Bucket, tick: Tick) -> None:
        with tempfile.TemporaryDirectory() as folder:
            for path, text in self.pins.items():
                pinned = Path(folder, _CONFIG)
                pinned.write_text(text)
                bucket.write(path, pinned, sha256_of(pinned))
            for upload in self.uploads:
                bucket.write(upload.path, self.repository / upload.path, self.manifest.files[upload.path], tick)
            self.manifest.write(Path(folder))
            bucket.write(FILE, Path(folder, FILE), sha256_of(Path(folder, FILE)))


def in_order(repository: Path, paths: Iterable[str]) -> list[str]:
    """Triton takes a model for what its config.pbtxt says: configs come after what they speak of, ensembles after members."""

    def rank(path: str) -> tuple[int, str]:
        if version_of(path):
            return 0, path
        if not path.endswith(f"/{_CONFIG}"):
            return 1, path
        return (3 if _ENSEMBLE.search((repository / path).read_text()) else 2), path

    return sorted(paths, key=rank)


def version_of(path: str) -> str:
    """`model/1` of what lies in a version's folder, else nothing."""
    parts = path.split("/")
    return "/".join(parts[:2]) if len(parts) > 2 and parts[1].isdecimal() else ""


def _published(bucket: Bucket, there: Mapping[str, int]) -> dict[str, str]:
    """By the manifest, and still there: what was taken away by hand is forgotten."""
    content = bucket.read(FILE)
    if content is None:
        return {}
    manifest = Manifest.parse(content)
    if manifest is None:
        raise StorageFailed(f"{bucket.address}/{FILE} can't be read: something else has written it. Publish to another prefix.")
    return {path: sha256 for path, sha256 in manifest.files.items() if path in there}


def _is_there(path: str, sha256: str, published: Mapping[str, str], there: Mapping[str, int], bucket: Bucket) -> bool:
    if path in published:
        return published[path] == sha256
    return path in there and bucket.checksum(path) == sha256


def _changed_versions(local: Manifest, published: Mapping[str, str]) -> Iterator[str]:
    ours, theirs = _by_version(local.files), _by_version(published)
    for version in sorted(ours.keys() & theirs.keys()):
        differing = sorted({path for path, _ in ours[version] ^ theirs[version]})
        if differing:
            yield (
                f"{version} is published and differs ({', '.join(differing)}). What is published stays as it is: give the "
                f"changed model a new version, or publish to another prefix."
            )


def _open_versions(repository: Path, local: Manifest, published: dict[str, str]) -> Iterator[str]:
    versions = _by_version(published | local.files)
    for config in sorted(path for path in local.files if path.endswith(f"/{_CONFIG}")):
        model = config.removesuffix(f"/{_CONFIG}")
        numbers = sorted(int(version.rpartition("/")[2]) for version in versions if version.rpartition("/")[0] == model)
        if len(numbers) > 1 and not _NAMED.search((repository / config).read_text()):
            yield (
                f"{model} has the versions {', '.join(map(str, numbers))} and does not say which are served: Triton would take "
                f"the newest, also while only half of it is there. Write into its {_CONFIG}: "
                f"version_policy: {{ specific: {{ versions: {numbers} }} }}"
            )


def _pins(bucket: Bucket, published: dict[str, str], missing: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Triton takes the newest version, half of it or all, where a config does not say otherwise."""
    there = _by_version(published)
    growing = {version.rpartition("/")[0] for path in missing if (version := version_of(path)) and version not in there}
    for model in sorted(growing):
        config = f"{model}/{_CONFIG}"
        numbers = sorted(int(version.rpartition("/")[2]) for version in there if version.rpartition("/")[0] == model)
        text = (bucket.read(config) or b"").decode() if numbers and config in published else ""
        if text and not _NAMED.search(text):
            yield config, f"{_POLICY.sub('', text).rstrip()}\nversion_policy: {{ specific: {{ versions: {numbers} }} }}\n"


def _by_version(files: Mapping[str, str]) -> dict[str, set[tuple[str, str]]]:
    found: dict[str, set[tuple[str, str]]] = {}
    for path, sha256 in files.items():
        if version := version_of(path):
            found.setdefault(version, set()).add((path, sha256))
    return found
