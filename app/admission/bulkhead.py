"""Bounded calls in flight per ensemble, so that one that is slow can't sink the others, and a short queue before them."""

import asyncio
import contextlib
from collections import deque
from math import ceil
from time import monotonic
from types import TracebackType

from app.deadline import Deadline
from app.errors import ClientClosed, DeadlineExceeded, Overloaded

_WEIGHT = 0.1
"""Of the latest call in the moving average of the service time."""
_MOST_PROMISED = 10.0
"""Seconds. Some never come again, or earlier than they were told: they must not keep others away for longer."""


class Bulkhead:
    """So many berths, and a queue before them, the highest priority first and then the earliest.

    A waiter waits for `patience` seconds at most, and never into the time that the call itself will need. The queue is as long
    as can be served in that time; where it is full, a waiter of lower priority gives way. An ensemble runs on when its caller
    has left or its deadline has passed (Triton looks only between steps), so that such a call holds its berth for the rest of
    the usual service time.
    """

    def __init__(self, name: str, berths: int, *, patience: float = 1.0) -> None:
        if berths < 1:
            raise ValueError("a bulkhead needs at least one berth")
        self.name = name
        self.berths = berths
        self.taken = 0
        self.waiting = 0
        self.service = 0.0
        """Seconds, a moving average of the calls that were answered."""
        self._patience = patience
        self._queues: dict[int, deque[asyncio.Future[None]]] = {}
        self._promised: dict[int, float] = {}
        """By priority, when all who were refused will have been served, if they come again as they were told."""

    def berth(self, priority: int, deadline: Deadline) -> "Berth":
        """`async with bulkhead.berth(...)`: raises `Overloaded` where there is no berth and no hope for one in time."""
        return Berth(self, priority, deadline)

    async def take(self, priority: int, deadline: Deadline) -> None:
        if self.taken < self.berths and not self.waiting:
            self.taken += 1
            return
        patience = min(self._patience, deadline.remaining() - self.service)
        if patience <= 0 or (self.waiting >= self._room() and not self._displace(priority)):
            raise self._overloaded(priority)
        await self._wait(priority, patience)

    def free(self) -> None:
        """The berth goes to whoever is first in line, or is free."""
        self.taken -= 1
        self._seat()

    def leave(self, since: float, *, answered: bool, abandoned: bool) -> None:
        elapsed = monotonic() - since
        if answered:  # what fails may do so at once, and tells nothing of how long an answer takes
            self.service += (elapsed - self.service) * (_WEIGHT if self.service else 1.0)
        if abandoned and elapsed < self.service:
            asyncio.get_running_loop().call_later(self.service - elapsed, self.free)
        else:
            self.free()

    async def _wait(self, priority: int, patience: float) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        queue = self._queues.setdefault(priority, deque())
        queue.append(turn)
        self.waiting += 1
        self._seat()
        try:
            async with asyncio.timeout(patience):
                await turn
        except BaseException as error:
            if turn.done() and not turn.cancelled() and turn.exception() is None:
                self.free()  # it came in the same moment
            turn.cancel()
            with contextlib.suppress(ValueError):
                queue.remove(turn)
            if isinstance(error, TimeoutError):
                raise self._overloaded(priority) from None
            raise
        finally:
            self.waiting -= 1

    def _seat(self) -> None:
        """Those in line, as far as there are berths: which may have become more while they stood there, or fewer."""
        for priority in sorted(self._queues):
            queue = self._queues[priority]
            while queue and self.taken < self.berths:
                turn = queue.popleft()
                if not turn.done():
                    self.taken += 1
                    turn.set_result(None)

    def _room(self) -> int:
        return max(self.berths, int(self.berths * self._patience / self.service)) if self.service else self.berths

    def _displace(self, priority: int) -> bool:
        """Send the latest waiter of the lowest priority away, where that is lower than `priority`."""
        for lower in sorted(self._queues, reverse=True):
            queue = self._queues[lower]
            while queue and lower > priority:
                turn = queue.pop()
                if not turn.done():
                    turn.set_exception(self._overloaded(lower))
                    return True
        return False

    def _overloaded(self, priority: int) -> Overloaded:
        """The wait that is promised is that for the whole queue to be served, and then all whom the same was told before: if
        they all came again at once, most would be refused once more.
        """
        each, now = self.service / self.berths, monotonic()
        before = max((moment for of, moment in self._promised.items() if of <= priority), default=now)
        wait = max(min(before - now, _MOST_PROMISED), self.waiting * each) + each
        self._promised[priority] = now + wait
        return Overloaded("all places for requests to this model are taken", retry_after=max(1, ceil(wait)))


class Berth:
    __slots__ = ("_bulkhead", "_deadline", "_priority", "_since")

    def __init__(self, bulkhead: Bulkhead, priority: int, deadline: Deadline) -> None:
        self._bulkhead = bulkhead
        self._priority = priority
        self._deadline = deadline

    async def __aenter__(self) -> None:
        await self._bulkhead.take(self._priority, self._deadline)
        self._since = monotonic()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        abandoned = kind is not None and issubclass(kind, (asyncio.CancelledError, ClientClosed, DeadlineExceeded))
        self._bulkhead.leave(self._since, answered=kind is None, abandoned=abandoned)
