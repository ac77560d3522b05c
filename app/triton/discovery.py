"""Which Tritons there are."""

import asyncio
import contextlib
import logging
import socket
import threading
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from app.triton.client import Endpoint

log = logging.getLogger("conch.triton")

_INTERVAL = 1.0
_PATIENCE = 5.0
_SCHEME = "dns:///"

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""A name's addresses, as `host:port`; raises `OSError`."""
Connect = Callable[[str, str], Endpoint]
"""From an address, and the name that it was found by, or none."""


@dataclass(frozen=True, slots=True)
class Target:
    """One entry of the setting: an address, or a name that stands for several."""

    host: str
    port: int
    resolved: bool

    @classmethod
    def parse(cls, text: str) -> "Target":
        host, _, port = text.removeprefix(_SCHEME).rpartition(":")
        return cls(host, int(port), text.startswith(_SCHEME))

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"


class Roster:
    """`endpoints` is swapped whole: a new one takes part at once, and one that vanished is closed when its calls are over."""

    def __init__(self, targets: Sequence[str], connect: Connect, resolve: "Resolve | None" = None) -> None:
        self.endpoints: tuple[Endpoint, ...] = ()
        self._targets = tuple(Target.parse(target) for target in targets)
        self._connect = connect
        self._resolve = resolve or resolved
        self._known: dict[Target, tuple[str, ...]] = {}
        self._told: set[Target] = set()
        self._retiring: dict[asyncio.Task[None], Endpoint] = {}

    async def watch(self, changed: Callable[[], None]) -> None:
        """Runs until it is cancelled."""
        while any(target.resolved for target in self._targets):
            await asyncio.sleep(_INTERVAL)
            if await self.refresh():
                changed()

    async def refresh(self) -> bool:
        """Look the names up; says whether that changed anything. A name that can't be looked up keeps what it had."""
        await asyncio.gather(*(self._look_up(target) for target in self._targets))
        former = {endpoint.address: endpoint for endpoint in self.endpoints}
        # Each with the name that it was found by.
        wanted = {at: each.host if each.resolved else "" for each in self._targets for at in self._known.get(each, ())}
        if not any(former[address].health.serving for address in wanted.keys() & former):
            # All have moved at once: those that still serve go on until one of the new ones does.
            wanted |= {address: "" for address, endpoint in former.items() if endpoint.health.serving}
        if wanted.keys() == former.keys():
            return False
        for address, endpoint in former.items():
            if address not in wanted:
                self._retire(endpoint)
        self.endpoints = tuple(former.get(address) or self._connect(address, name) for address, name in wanted.items())
        if former:
            log.info("endpoints are now: %s", ", ".join(sorted(wanted)) or "none")
        return True

    async def close(self) -> None:
        """All of them, with whatever still runs."""
        for task in self._retiring:
            task.cancel()
        for endpoint in (*self.endpoints, *self._retiring.values()):
            await endpoint.close()

    async def _look_up(self, target: Target) -> None:
        if not target.resolved:
            self._known[target] = (target.address,)
            return
        try:
            async with asyncio.timeout(_PATIENCE):
                found = await self._resolve(target.host, target.port)
        except (OSError, TimeoutError) as error:
            if target not in self._told:
                log.warning("the name %s can't be looked up: %s", target.host, type(error).__name__)
            self._told.add(target)
            return
        self._told.discard(target)
        self._known[target] = tuple(sorted(set(found)))

    def _retire(self, endpoint: Endpoint) -> None:
        task = asyncio.create_task(endpoint.retire())
        self._retiring[task] = endpoint
        task.add_done_callback(self._retiring.pop)


async def resolved(host: str, port: int) -> list[str]:
    """By the system's resolver, in a thread of its own: one that hangs must not keep the process from ending."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[list[str]] = loop.create_future()

    def settle(found: list[str] | OSError) -> None:
        if not future.done():
            future.set_exception(found) if isinstance(found, OSError) else future.set_result(found)

    def ask() -> None:
        found: list[str] | OSError
        try:
            found = [_shown(info[4][0], port) for info in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]
        except OSError as error:
            found = error
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(settle, found)

    threading.Thread(target=ask, name="resolver", daemon=True).start()
    return await future


def _shown(host: str | int, port: int) -> str:
    return f"[{host}]:{port}" if ":" in str(host) else f"{host}:{port}"
