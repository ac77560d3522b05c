"""Whether a Redis can be asked now: a circuit breaker around one connection, mended in the background.

Closed, requests use `wire`. Five failures in a row, more failures than answers in ten seconds, a lost connection or a refusal
that no retry can mend open it: `wire` is None, and nobody waits for Redis. Half-open is a probe with a deadline, sent by the
keeper and never by a request; one at a time, with jitter.
"""

import asyncio
import logging
import random
from collections import deque
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Literal, Protocol

from app.admission.redis_address import RedisAddress, packed
from app.admission.redis_wire import RedisLost, RedisRefused, RedisSilent, RedisWire, dial

_log = logging.getLogger("conch.admission")

_FAILURES = 5
_FAILURES_AMONG_ANSWERS, _WINDOW = 10, 10.0
_DIAL_PATIENCE = 1.0
_SILENCE = 1.0
_HEARTBEAT = 5.0
_PAUSES = (0.05, 1.0)
_PING = packed("PING")
# What a demoted, loading or partitioned server says: another may be behind the same name by now.
_MOVED_ON = ("READONLY", "LOADING", "MASTERDOWN", "CLUSTERDOWN", "MOVED", "NOAUTH", "NOPERM", "MISCONF", "OOM")
# What a node of a cluster says of one slot, and not of itself.
_ELSEWHERE = ("MOVED", "ASK", "TRYAGAIN")

RedisTrouble = (RedisLost, RedisSilent, RedisRefused)
Mode = Literal["exact", "degraded"]


class Guide(Protocol):
    async def find(self) -> RedisAddress:
        """Where the Redis is that decides now. Raises one of `RedisTrouble`."""
        ...


class RedisLink:
    """`probes` are commands that only a Redis that can decide answers without an error; their scripts stay there.

    `alarm`, where there is one, hears why the breaker opened, and of slots that another node of the cluster has.
    """

    def __init__(
        self,
        guide: Guide,
        *,
        probes: Sequence[bytes],
        budget: float,
        alarm: Callable[[str], None] | None = None,
    ) -> None:
        self.wire: RedisWire | None = None
        self.changes = 0
        self.why = "not connected yet"
        self.probes = probes
        self.owed: deque[tuple[int, bytes]] = deque(maxlen=10_000)
        self._guide = guide
        self._budget = budget
        self._alarm = alarm
        self._place = repr(guide)
        self._line: RedisWire | None = None
        self._tally = _Tally()
        self._open = asyncio.Event()
        self._tried = asyncio.Event()
        self._keeper: asyncio.Task[None] | None = None

    @property
    def mode(self) -> Mode:
        return "degraded" if self.wire is None else "exact"

    @property
    def trouble(self) -> str:
        return f"Redis at {self._place} can't decide: {self.why}" if self.wire is None else ""

    def link_for(self, slot: int) -> "RedisLink":
        return self

    async def open(self) -> None:
        """Waits for the first attempt, so that the first decisions are exact, but starts without Redis."""
        self._keeper = asyncio.create_task(self._keep())
        await self._tried.wait()
        if self.wire is None:
            _log.warning("limits are degraded, %s", self.trouble)

    async def close(self) -> None:
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.wait([self._keeper])
        if self._line is not None:
            self._line.close()
        self.wire = self._line = None

    def answered(self) -> None:
        self._tally.answered()

    def failed(self, error: Exception) -> None:
        if self._alarm is not None and str(error).startswith(_ELSEWHERE):
            self._alarm(str(error))
            return
        final = isinstance(error, RedisLost) or str(error).startswith(_MOVED_ON)
        if self._tally.failed() or final:
            self._trip(str(error))
        if isinstance(error, RedisRefused) and final and self._line is not None:
            self._line.drop()

    def send(self, command: bytes, slot: int) -> None:
        """Fire and forget; kept for later while Redis can't be asked."""
        if self.wire is None:
            self.owed.append((slot, command))
        else:
            self.wire.send(command)

    def _trip(self, why: str) -> None:
        self.why = why
        if self.wire is None:
            return
        self.wire = None
        self.changes += 1
        self._open.set()
        _log.warning("limits are degraded, %s", self.trouble)
        if self._alarm is not None:
            self._alarm(why)

    def _mend(self, wire: RedisWire) -> None:
        self.wire = wire
        self.changes += 1
        self._tally = _Tally()
        self._open.clear()
        self._tried.set()
        while self.owed:
            wire.send(self.owed.popleft()[1])
        _log.info("limits are exact, Redis at %s decides", self._place)

    async def _keep(self) -> None:
        while True:
            self._mend(await self._restored())
            while self.wire is not None:
                await self._beat(self.wire)

    async def _beat(self, wire: RedisWire) -> None:
        """Returns when the breaker opens, or after a ping: a connection that died while idle costs no request anything."""
        try:
            # Not wait_for, which in Python 3.11 can swallow a cancellation.
            async with asyncio.timeout(_HEARTBEAT):
                await self._open.wait()
        except TimeoutError:
            try:
                await wire.call(_PING)
            except RedisTrouble as error:
                self.failed(error)

    async def _restored(self) -> RedisWire:
        pause, longest = _PAUSES
        while True:
            try:
                wire = await self._dialled()
                await asyncio.gather(*map(wire.call, self.probes))
            except RedisTrouble as error:
                self.why = str(error)
                self._tried.set()
                if isinstance(error, RedisRefused) and self._line is not None:
                    self._line.drop()
            else:
                return wire
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311  jitter
            pause = min(longest, pause * 2)

    async def _dialled(self) -> RedisWire:
        """The connection at hand while it shows life: its late replies tell what to give back."""
        line = self._line
        if line is None or not line.alive or line.silence() > _SILENCE:
            if line is not None:
                line.drop()
            address = await self._guide.find()
            self._place = address.place
            self._line = line = await dial(address, budget=self._budget, patience=_DIAL_PATIENCE, lost=self._break)
        return line

    def _break(self) -> None:
        self._trip("the connection broke")


class _Tally:
    """Answers and failures since the breaker closed; an answer costs two additions."""

    def __init__(self) -> None:
        self._in_a_row = 0
        self._answers = 0
        self._failures: deque[tuple[float, int]] = deque(maxlen=1000)

    def answered(self) -> None:
        self._in_a_row = 0
        self._answers += 1

    def failed(self) -> bool:
        """Whether that was one too many: in a row, or of all that happened since the first failure within the window."""
        now = monotonic()
        self._in_a_row += 1
        self._failures.append((now, self._answers))
        while self._failures[0][0] < now - _WINDOW:
            self._failures.popleft()
        failures, answers = len(self._failures), self._answers - self._failures[0][1]
        return self._in_a_row >= _FAILURES or (failures >= _FAILURES_AMONG_ANSWERS and failures > answers)
