"""Who is behind a key: a snapshot of `tenants.yaml`, replaced whole whenever the file changes."""

import asyncio
import hmac
import logging
import time
from collections.abc import Mapping
from pathlib import Path

from app.tenancy.key import digest
from app.tenancy.snapshot import Snapshot, load, tenants_files
from app.tenancy.tenant import Principal, Tenant
from app.tenancy.tenants_file import TenantsInvalid

_log = logging.getLogger("conch.tenancy")


class Directory:
    """`generation` counts the snapshots taken into use, `failures` the reloads that changed nothing because a file was bad."""

    def __init__(self, path: Path) -> None:
        """Raises `TenantsInvalid`."""
        self.path = path
        self.generation = 1
        self.failures = 0
        self._seen = _fingerprint(path)
        self._snapshot = load(path)

    @property
    def tenants(self) -> Mapping[str, Tenant]:
        return self._snapshot.tenants

    def authenticate(self, key: bytes) -> Principal | None:
        """The principal of a key that is known and valid now. Costs a hash and a look-up, however many tenants there are."""
        presented = digest(key)
        credential = self._snapshot.credentials.get(presented)
        if credential is None or not hmac.compare_digest(credential.digest, presented):
            return None
        return credential.principal if credential.not_before <= time.time() < credential.expires_at else None

    def reload(self) -> None:
        """Raises `TenantsInvalid`, and then the snapshot in use stays."""
        self._replace(load(self.path))

    async def watch(self, interval: float = 0.5) -> None:
        """For ever: reload within about two intervals of a change, in a thread, and say so in one line."""
        while True:
            await asyncio.sleep(interval)
            await self._follow()

    async def _follow(self) -> None:
        fingerprint = _fingerprint(self.path)
        if fingerprint == self._seen:
            return
        # Half a file can be valid, and means fewer tenants: let the writer finish.
        await asyncio.sleep(0.1)
        if _fingerprint(self.path) != fingerprint:
            return
        self._seen = fingerprint
        try:
            self._replace(await asyncio.to_thread(load, self.path))
        except TenantsInvalid as error:
            self.failures += 1
            more = f" (and {len(error.faults) - 1} more)" if len(error.faults) > 1 else ""
            _log.error("tenants not reloaded, those in use stay: %s%s", error.faults[0], more)
        else:
            _log.info("tenants reloaded: %d tenants, generation %d", len(self.tenants), self.generation)

    def _replace(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self.generation += 1


def _fingerprint(path: Path) -> list[tuple[str, int, int, int]]:
    return [(file.name, *_state(file)) for file in tenants_files(path)]


def _state(file: Path) -> tuple[int, int, int]:
    try:
        status = file.stat()
    except OSError:
        return 0, 0, 0
    return status.st_mtime_ns, status.st_size, status.st_ino
