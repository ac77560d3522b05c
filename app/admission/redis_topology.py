"""Which Redis decides for which tenant: one server, the master that Sentinels name, or the nodes of a cluster."""

from typing import Protocol

from app.admission.redis_address import ClusterAddress, SentinelAddress, parse_address
from app.admission.redis_cluster import Probes, RedisCluster
from app.admission.redis_link import Mode, RedisLink
from app.admission.redis_sentinels import Sentinels


class Topology(Protocol):
    @property
    def mode(self) -> Mode: ...

    @property
    def trouble(self) -> str:
        """Why it can't decide, for some tenants at least, as was seen last; empty where it can."""
        ...

    def link_for(self, slot: int) -> RedisLink:
        """To be asked for at every command: who has a slot may change at any time."""
        ...

    async def open(self) -> None:
        """To be awaited before use: it waits for the first attempt to connect, and for no other."""
        ...

    async def close(self) -> None: ...


def topology(url: str, *, probes: Probes, budget: float) -> Topology:
    """Raises `ValueError` where the URL is none of Redis."""
    match parse_address(url):
        case ClusterAddress() as address:
            return RedisCluster(address, probes=probes, budget=budget)
        case SentinelAddress() as address:
            return RedisLink(Sentinels(address), probes=probes("_probe"), budget=budget)
        case address:
            return RedisLink(address, probes=probes("_probe"), budget=budget)
