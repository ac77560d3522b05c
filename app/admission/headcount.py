"""How many gateways share the limits: what each of them applies alone while Redis is away is divided by it."""

import asyncio
from collections import deque

from app.admission.account import Script
from app.admission.redis_address import packed
from app.admission.redis_cluster import slot_of
from app.admission.redis_link import RedisTrouble
from app.admission.redis_topology import Topology

_EVERY = 3.0
_COUNTS_US = 10_000_000
# No tenant can have this id.
_NAME = "_gateways"
_KEY = f"conch:{{{_NAME}}}".encode()
_SLOT = slot_of(_NAME)


class Headcount:
    """As told; or counted by heartbeats in Redis, and then the last count holds while Redis is away.

    The most of the last counts: after Redis came back empty, the first gateway to say that it lives is not the only one.
    """

    def __init__(self, redis: Topology, member: bytes, told: int | None) -> None:
        self._redis = redis
        self._member = member
        self._told = told
        self._beat = Script.read("heartbeat.lua")
        self._counts = deque([told or 1], maxlen=4)
        self._keeper: asyncio.Task[None] | None = None
        self.replicas = told or 1

    async def open(self) -> None:
        if self._told is None:
            await self._say()
            self._keeper = asyncio.create_task(self._keep())

    async def close(self) -> None:
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.wait([self._keeper])
            wire = self._redis.link_for(_SLOT).wire
            if wire is not None:
                wire.send(packed("ZREM", _KEY, self._member))

    async def _keep(self) -> None:
        while True:
            await asyncio.sleep(_EVERY)
            await self._say()

    async def _say(self) -> None:
        wire = self._redis.link_for(_SLOT).wire
        if wire is None:
            return
        command = self._beat.in_full(self._beat.command([_KEY], [self._member, b"%d" % _COUNTS_US]))
        try:
            self._counts.append(int(await wire.call(command)))
        except (*RedisTrouble, TypeError, ValueError):
            return  # a heartbeat may fall out; the next one is near
        self.replicas = max(self._counts)
