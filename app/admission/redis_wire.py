"""One connection to Redis, shared by all requests of the process.

Commands issued in one turn of the event loop leave in one write. A reply belongs to the place of its command in the order sent,
and to nothing else: a waiter that was cancelled, or gave up, leaves its place behind, so no reply can reach anyone else.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic
from typing import Any, cast

import hiredis

from app.admission.redis_address import RedisAddress
from app.admission.redis_tls import reason

Reply = Any
Late = Callable[[Reply], None]

_MOST_WAITING = 10_000
_GRACE = 0.002


class RedisLost(Exception):
    """No connection, or it broke."""


class RedisSilent(Exception):
    """No reply within the budget."""


class RedisRefused(Exception):
    """An error reply."""


@dataclass(slots=True)
class _Place:
    future: asyncio.Future[Reply] | None
    deadline: float
    late: Late | None


class RedisWire(asyncio.Protocol):
    """One connection, from its first byte to its last. `lost` is called when it breaks, not when it is closed or dropped."""

    def __init__(self, *, budget: float = 0.05, lost: Callable[[], None] = lambda: None) -> None:
        self.budget = budget
        self._lost = lost
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._reader = hiredis.Reader()
        self._outbox: list[bytes] = []
        self._waiting: deque[_Place] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._choked = False
        self._heard_at = self._looked_at = monotonic()

    @property
    def alive(self) -> bool:
        return self._transport is not None

    def hurry(self, budget: float) -> None:
        """A new budget, for when nothing waits; a timer still set for the old one would wake up too late."""
        self.budget = budget
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def silence(self) -> float:
        """Seconds since Redis last spoke, while something waits for it; else 0."""
        return monotonic() - self._heard_at if self._waiting else 0.0

    def call(self, command: bytes, late: Late | None = None) -> asyncio.Future[Reply]:
        """The reply, or `RedisSilent`, `RedisLost`, `RedisRefused`. `late` gets a reply for which nobody waits any more."""
        future: asyncio.Future[Reply] = self._loop.create_future()
        if not self._takes_more():
            future.set_exception(RedisLost("no connection that takes commands"))
            return future
        deadline = monotonic() + self.budget
        self._enqueue(command, _Place(future, deadline, late))
        if self._timer is None:
            self._watch(deadline)
        return future

    def send(self, command: bytes, landed: Late | None = None) -> None:
        """Fire and forget: nothing is raised, and what can't leave now is not sent."""
        if self._takes_more():
            self._enqueue(command, _Place(None, 0.0, landed))

    def flush(self) -> None:
        if self._outbox and self._transport is not None:
            self._transport.write(b"".join(self._outbox))
        self._outbox.clear()

    def close(self) -> None:
        """What was issued before still leaves."""
        self.flush()
        transport = self._forget(RedisLost("closed"))
        if transport is not None:
            transport.close()

    def drop(self, why: str = "dropped") -> None:
        transport = self._forget(RedisLost(why))
        if transport is not None:
            transport.abort()

    def _takes_more(self) -> bool:
        return self._transport is not None and not self._choked and len(self._waiting) < _MOST_WAITING

    def _enqueue(self, command: bytes, place: _Place) -> None:
        if not self._outbox:
            self._loop.call_soon(self.flush)
        if not self._waiting:
            self._heard_at = monotonic()
        self._outbox.append(command)
        self._waiting.append(place)

    def _watch(self, deadline: float) -> None:
        self._timer = self._loop.call_later(max(0.0, deadline - monotonic()), self._look_once_more)

    def _look_once_more(self) -> None:
        # The loop itself may have been held up: read what has arrived before Redis is blamed.
        self._looked_at = monotonic()
        self._timer = self._loop.call_later(_GRACE, self._give_up)

    def _give_up(self) -> None:
        self._timer = None
        for place in self._waiting:
            if place.future is None or place.future.done():
                continue
            if place.deadline > self._looked_at:  # for what became due since then nobody has looked once more
                self._watch(place.deadline)
                break
            place.future.set_exception(RedisSilent("no reply within the budget"))

    def _forget(self, error: Exception) -> asyncio.Transport | None:
        transport, self._transport = self._transport, None
        waiting, self._waiting = self._waiting, deque()
        self._outbox.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for place in waiting:
            if place.future is not None and not place.future.done():
                place.future.set_exception(error)
        return transport

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._heard_at = monotonic()
        reader, waiting = self._reader, self._waiting
        reader.feed(data)
        try:
            while (reply := reader.gets()) is not False:
                _deliver(waiting.popleft(), reply)
        except (hiredis.ProtocolError, IndexError):
            # Not Redis, or more replies than commands: no reply can be trusted any more.
            self.connection_lost(None)

    def connection_lost(self, error: Exception | None) -> None:
        if self.alive:
            why = reason(error)
            self.drop(f"the connection broke{f': {why}' if why else ''}")
            self._lost()

    def pause_writing(self) -> None:
        self._choked = True

    def resume_writing(self) -> None:
        self._choked = False


def _deliver(place: _Place, reply: Reply) -> None:
    future = place.future
    if future is None or future.done():
        if place.late is not None:
            place.late(reply)
    elif isinstance(reply, hiredis.ReplyError):
        future.set_exception(RedisRefused(str(reply)))
    else:
        future.set_result(reply)


async def dial(address: RedisAddress, *, budget: float, patience: float, lost: Callable[[], None]) -> RedisWire:
    """A fresh connection, entered and answering. Raises `RedisLost`, `RedisSilent` or `RedisRefused`."""
    loop, wire = asyncio.get_running_loop(), RedisWire(budget=patience, lost=lost)
    try:
        async with asyncio.timeout(patience):
            if address.path:
                await loop.create_unix_connection(lambda: wire, address.path)
            else:
                tls = address.tls.context() if address.tls else None
                await loop.create_connection(lambda: wire, address.host, address.port, ssl=tls)
            await asyncio.gather(*map(wire.call, address.greeting))
    except TimeoutError:
        wire.drop()
        raise RedisSilent(f"the connection did not open in time{' (is TLS spoken there?)' if address.tls else ''}") from None
    except OSError as error:
        wire.drop()
        raise RedisLost(f"the connection did not open: {reason(error)}") from error
    except BaseException:  # raised again below
        wire.drop()
        raise
    wire.hurry(budget)
    return wire
