"""The nodes of a cluster: a link to each master, and which of them has which slot."""

import asyncio
import logging
import random
from binascii import crc_hqx
from collections.abc import Callable, Iterable, Sequence
from itertools import count

from app.admission.redis_address import ClusterAddress, RedisAddress, packed
from app.admission.redis_link import Mode, RedisLink, RedisTrouble
from app.admission.redis_wire import RedisRefused, RedisWire, Reply, dial

_log = logging.getLogger("conch.admission")

SLOTS = 16_384
_PATIENCE = 1.0
_LOOK_AROUND = 30.0
_PAUSES = (0.1, 1.0)
_ASK = packed("CLUSTER", "SLOTS")

Probes = Callable[[str], Sequence[bytes]]
Map = dict[RedisAddress, list[range]]


def slot_of(tag: str) -> int:
    """The slot of every key with this hash tag."""
    return crc_hqx(tag.encode(), 0) % SLOTS


class RedisCluster:
    """A slot whose master is away, or moves, has a link without a wire, or is refused: its tenants, and only they, are decided
    without Redis until the map is right again. It is drawn anew in the background, one drawing at a time.
    """

    def __init__(self, address: ClusterAddress, *, probes: Probes, budget: float) -> None:
        """`probes` makes a link's probes of a name whose slot the node has."""
        self._seeds = address.seeds
        self._probes = probes
        self._budget = budget
        self._nowhere = RedisLink(address.seeds[0], probes=(), budget=budget)
        self._links: dict[str, RedisLink] = {}
        self._slots = [self._nowhere] * SLOTS
        self._alarmed = asyncio.Event()
        self._drawn = asyncio.Event()
        self._keeper: asyncio.Task[None] | None = None

    @property
    def mode(self) -> Mode:
        exact = all(link.wire is not None for link in set(self._slots))
        return "exact" if exact else "degraded"

    @property
    def trouble(self) -> str:
        return next((link.trouble for link in set(self._slots) if link.wire is None), "")

    def link_for(self, slot: int) -> RedisLink:
        return self._slots[slot]

    async def open(self) -> None:
        """Waits for the first attempt, like a link."""
        self._keeper = asyncio.create_task(self._keep())
        await self._drawn.wait()

    async def close(self) -> None:
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.wait([self._keeper])
        for link in self._links.values():
            await link.close()

    async def _keep(self) -> None:
        pause, longest = _PAUSES
        while True:
            try:
                await self._adopt(await self._map())
            except RedisTrouble as error:
                self._nowhere.why = f"no node of the cluster tells where its slots are: {error}"
                if not self._drawn.is_set():
                    _log.warning("limits are degraded, %s", self._nowhere.why)
            self._drawn.set()
            pause = _PAUSES[0] if self.mode == "exact" else min(longest, pause * 2)
            await self._pause(_LOOK_AROUND if self.mode == "exact" else pause)

    async def _pause(self, seconds: float) -> None:
        """Until the next alarm, or so many seconds; a storm of alarms is one."""
        await asyncio.sleep(_PAUSES[0] * random.uniform(0.5, 1.0))  # noqa: S311  jitter
        try:
            async with asyncio.timeout(seconds):
                await self._alarmed.wait()
        except TimeoutError:
            pass
        self._alarmed.clear()

    def _alarm(self, why: str) -> None:
        match why.split():
            case ["MOVED", slot, place] if slot.isdigit() and int(slot) < SLOTS:
                self._slots[int(slot)] = self._links.get(place, self._slots[int(slot)])
            case ["ASK" | "TRYAGAIN", *_]:
                return  # the slot moves, and the map is right until it has
        self._alarmed.set()

    async def _map(self) -> Map:
        """As any node sees it. Raises one of `RedisTrouble` where none answers."""
        links = list(self._links.items())
        random.shuffle(links)
        for place, link in links:
            if link.wire is not None:
                try:
                    return self._read(await link.wire.call(_ASK), place.rpartition(":")[0])
                except RedisTrouble as error:
                    link.failed(error)
        known = (self._at(place) for place, _ in links)
        return await self._map_of_any((*self._seeds, *known))

    async def _map_of_any(self, nodes: Iterable[RedisAddress]) -> Map:
        why: Exception | None = None
        for node in nodes:
            wire: RedisWire | None = None
            try:
                wire = await dial(node, budget=_PATIENCE, patience=_PATIENCE, lost=lambda: None)
                return self._read(await wire.call(_ASK), node.host)
            except RedisTrouble as error:
                why = error
            finally:
                if wire is not None:
                    wire.close()
        raise why or RedisRefused("no nodes")

    def _read(self, reply: Reply, asked: str) -> Map:
        """A node that does not know its own name is where it was asked."""
        drawn: dict[str, list[range]] = {}
        try:
            for first, last, (host, port, *_), *_ in reply:
                drawn.setdefault(f"{(host or b'').decode() or asked}:{port}", []).append(range(first, last + 1))
        except (TypeError, ValueError):
            raise RedisRefused("not a map of a cluster") from None
        return {self._at(place): slots for place, slots in drawn.items()}

    def _at(self, place: str) -> RedisAddress:
        host, _, port = place.rpartition(":")
        return self._seeds[0].at(host, int(port))

    async def _adopt(self, drawn: Map) -> None:
        fresh = {node.place: self._link(node, slots) for node, slots in drawn.items() if node.place not in self._links}
        links = self._links = self._links | fresh
        await asyncio.gather(*(link.open() for link in fresh.values()))
        owners = [self._nowhere] * SLOTS
        for node, ranges in drawn.items():
            link = links[node.place]
            link.probes = self._probes(_name_in(ranges))
            for slots in ranges:
                owners[slots.start : slots.stop] = [link] * len(slots)
        self._slots, self._links = owners, {node.place: links[node.place] for node in drawn}
        for retired in [link for place, link in links.items() if place not in self._links]:
            await retired.close()
            for slot, command in retired.owed:
                self.link_for(slot).send(command, slot)

    def _link(self, node: RedisAddress, slots: list[range]) -> RedisLink:
        return RedisLink(node, probes=self._probes(_name_in(slots)), budget=self._budget, alarm=self._alarm)


def _name_in(ranges: Sequence[range]) -> str:
    """A name that no tenant can have, whose slot is one of these."""
    names = (f"_probe-{number}" for number in count())
    return next(name for name in names if any(slot_of(name) in slots for slots in ranges))
