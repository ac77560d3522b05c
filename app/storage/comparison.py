"""`conch models verify s3://…`: a published repository against its manifest, byte for byte."""

import hashlib
from collections.abc import Iterator

from app.local.models.manifest import FILE, Manifest
from app.storage.bucket import Bucket, Tick


class Comparison:
    """Reads the manifest and the list at once, and the objects when asked for the faults."""

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket
        content = bucket.read(FILE)
        self._manifest = Manifest.parse(content) if content is not None else None
        self._sizes = {path: size for path, size in bucket.sizes().items() if path != FILE}

    @property
    def size(self) -> int:
        return sum(self._sizes[path] for path in self._both())

    def faults(self, tick: Tick) -> Iterator[str]:
        """A sentence each. `tick` hears how many bytes were read."""
        if self._manifest is None:
            yield f"{self._bucket.address} has no {FILE}: nothing is published there, or a first publish has not finished."
            return
        expected, found = self._manifest.files, self._sizes.keys()
        yield from (f"{path} is missing." for path in sorted(expected.keys() - found))
        for path in sorted(found - expected.keys()):
            yield f"{path} is not in the manifest: a publish has not finished (run it again), or something else put it there."
        for path in self._both():
            if self._sha256(path, tick) != expected[path]:
                yield f"{path} has changed."

    def _both(self) -> list[str]:
        return sorted(self._manifest.files.keys() & self._sizes.keys()) if self._manifest else []

    def _sha256(self, path: str, tick: Tick) -> str:
        digest = hashlib.sha256()
        for chunk in self._bucket.chunks(path):
            digest.update(chunk)
            tick(len(chunk))
        return digest.hexdigest()
