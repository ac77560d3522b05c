"""Whether Redis can be asked now: a circuit breaker around one connection, mended in the background.

Closed, requests use `wire`. Five failures in a row, a lost connection or a refusal that no retry can mend open it: `wire` is
None, and nobody waits for Redis. Half-open is a probe with a deadline, sent by the keeper and never by a request; one at a
time, with jitter.
"""

import asyncio
import logging
import random
from collections import deque
from collections.abc import Sequence
from types import TracebackType
from typing import Literal

import hiredis

from app.admission.redis_address import RedisAddress
from app.admission.redis_wire import RedisLost, RedisRefused, RedisSilent, RedisWire, dial

_log = logging.getLogger("conch.admission")

_FAILURES = 5
_DIAL_PATIENCE = 1.0
_SILENCE = 1.0
_HEARTBEAT = 5.0
_PAUSES = (0.05, 1.0)
_PING = hiredis.pack_command(("PING",))
# What a demoted, loading or partitioned server says: another may be behind the same name by now.
_MOVED_ON = ("READONLY", "LOADING", "MASTERDOWN", "CLUSTERDOWN", "MOVED", "NOAUTH", "NOPERM", "MISCONF", "OOM")

RedisTrouble = (RedisLost, RedisSilent, RedisRefused)


class RedisLink:
    """`probes` are commands that only a Redis that can decide answers without an error; their scripts stay there."""

    def __init__(self, url: str, *, probes: Sequence[bytes], budget: float) -> None:
        self.address = RedisAddress.parse(url)
        self.wire: RedisWire | None = None
        self.changes = 0
        self._probes = probes
        self._budget = budget
        self._line: RedisWire | None = None
        self._failures = 0
        self._open = asyncio.Event()
        self._tried = asyncio.Event()
        self._owed: deque[bytes] = deque(maxlen=10_000)
        self._why = "not connected yet"
        self._keeper: asyncio.Task[None] | None = None

    @property
    def mode(self) -> Literal["exact", "degraded"]:
        return "degraded" if self.wire is None else "exact"

    async def __aenter__(self) -> "RedisLink":
        """Waits for the first attempt, so that the first decisions are exact, but starts without Redis."""
        self._keeper = asyncio.create_task(self._keep())
        await self._tried.wait()
        if self.wire is None:
            _log.warning("limits are degraded, Redis at %s can't decide: %s", self.address, self._why)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.wait([self._keeper])
        if self._line is not None:
            self._line.close()
        self.wire = self._line = None

    def answered(self) -> None:
        self._failures = 0

    def failed(self, error: Exception) -> None:
        self._failures += 1
        final = isinstance(error, RedisLost) or str(error).startswith(_MOVED_ON)
        if final or self._failures >= _FAILURES:
            self._trip(str(error))
        if isinstance(error, RedisRefused) and final and self._line is not None:
            self._line.drop()

    def send(self, command: bytes) -> None:
        """Fire and forget; kept for later while Redis can't be asked."""
        if self.wire is None:
            self._owed.append(command)
        else:
            self.wire.send(command)

    def _trip(self, why: str) -> None:
        self._why = why
        if self.wire is None:
            return
        self.wire = None
        self.changes += 1
        self._open.set()
        _log.warning("limits are degraded, Redis at %s can't decide: %s", self.address, why)

    def _mend(self, wire: RedisWire) -> None:
        self.wire = wire
        self.changes += 1
        self._failures = 0
        self._open.clear()
        self._tried.set()
        while self._owed:
            wire.send(self._owed.popleft())
        _log.info("limits are exact, Redis at %s decides", self.address)

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
                await asyncio.gather(*map(wire.call, self._probes))
            except RedisTrouble as error:
                self._why = str(error)
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
            self._line = line = await dial(self.address, budget=self._budget, patience=_DIAL_PATIENCE, lost=self._break)
        return line

    def _break(self) -> None:
        self._trip("the connection broke")
