"""Certificates that are renewed on disk, taken over by the endpoints that live."""

import asyncio
import logging
from collections.abc import Callable

from app.triton.client import CallFailed, ChannelOptions, Endpoint
from app.triton.discovery import Roster

log = logging.getLogger("conch.triton")

_INTERVAL = 1.0


class Renewal:
    """Each endpoint goes over to the new files once Triton has answered to them, so that files which do not fit each other yet,
    or of which Triton does not know yet, break nothing: what works goes on, and the new ones are tried again.
    """

    def __init__(self, roster: Roster, read: Callable[[], ChannelOptions]) -> None:
        self._roster = roster
        self._read = read
        self._told: set[str] = set()

    async def watch(self) -> None:
        """Runs until it is cancelled."""
        while True:
            await asyncio.sleep(_INTERVAL)
            await self.renew()

    async def renew(self) -> None:
        try:
            options = self._read()
        except OSError as error:
            self._warn(f"the certificates for Triton can't be read: {error.strerror}")
            return
        stale = [endpoint for endpoint in self._roster.endpoints if endpoint.options != options]
        await asyncio.gather(*(self._renew(endpoint, options) for endpoint in stale))
        if all(endpoint.options == options for endpoint in self._roster.endpoints):
            self._told.clear()

    async def _renew(self, endpoint: Endpoint, options: ChannelOptions) -> None:
        try:
            await endpoint.renew(options)
        except CallFailed as failed:
            self._warn(f"endpoint {endpoint.address} does not answer to the renewed certificates: {failed.failure.name}")
        else:
            log.info("endpoint %s is asked with renewed certificates", endpoint.address)

    def _warn(self, words: str) -> None:
        """Once, until all is well."""
        if words not in self._told:
            self._told.add(words)
            log.warning(words)
