"""What a file says now: read again whenever it changes, checked first, and taken into use whole or not at all."""

import asyncio
import logging
from collections.abc import Callable, Sized
from pathlib import Path
from typing import Generic, TypeVar

from app.tenancy.snapshot import tenants_files
from app.tenancy.tenants_file import TenantsInvalid

_log = logging.getLogger("conch.tenancy")

Content = TypeVar("Content", bound=Sized)


class Edition(Generic[Content]):
    """`generation` counts what was taken into use, `failures` the reloads that changed nothing because a file was bad.
    `refused` says why the file, as it is now, can't be used; nothing, where it can.
    """

    def __init__(self, name: str, path: Path, read: Callable[[Path], Content]) -> None:
        """`read` raises `TenantsInvalid`, and so does this."""
        self.generation = 1
        self.failures = 0
        self.refused = ""
        self._name = name
        self._path = path
        self._read = read
        self._seen = _fingerprint(path)
        self.content = read(path)

    async def watch(self, taken: Callable[[Content], None] = lambda content: None, interval: float = 0.5) -> None:
        """For ever: reload within about two intervals of a change, in a thread, and say so in one line."""
        while True:
            await asyncio.sleep(interval)
            if await self._is_other():
                await self._follow(taken)

    async def _is_other(self) -> bool:
        fingerprint = _fingerprint(self._path)
        if fingerprint == self._seen:
            return False
        # Half a file can be valid, and means fewer tenants: let the writer finish.
        await asyncio.sleep(0.1)
        if _fingerprint(self._path) != fingerprint:
            return False
        self._seen = fingerprint
        return True

    async def _follow(self, taken: Callable[[Content], None]) -> None:
        try:
            self.content = await asyncio.to_thread(self._read, self._path)
        except TenantsInvalid as error:
            self.failures += 1
            self.refused = str(error.faults[0])
            more = f" (and {len(error.faults) - 1} more)" if len(error.faults) > 1 else ""
            _log.error("%s not reloaded, those in use stay: %s%s", self._name, self.refused, more)
        else:
            self.generation += 1
            self.refused = ""
            taken(self.content)
            _log.info("%s reloaded: %d in generation %d", self._name, len(self.content), self.generation)


def _fingerprint(path: Path) -> list[tuple[str, int, int, int]]:
    return [(file.name, *_state(file)) for file in tenants_files(path)]


def _state(file: Path) -> tuple[int, int, int]:
    try:
        status = file.stat()
    except OSError:
        return 0, 0, 0
    return status.st_mtime_ns, status.st_size, status.st_ino
