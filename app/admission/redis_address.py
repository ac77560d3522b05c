"""Where a Redis is and how to enter it, read from a URL."""

import re
from dataclasses import dataclass, replace
from typing import Any, cast

import hiredis
from redis.asyncio.connection import SSLConnection, UnixDomainSocketConnection, parse_url

from app.admission.redis_tls import RedisTls

_SEVERAL = re.compile(r"(rediss?)\+(cluster|sentinel)://(?:([^@/?]*@))?([^@/?]+)(/[^?]*)?(\?.*)?")


@dataclass(frozen=True, slots=True)
class RedisAddress:
    """Where Redis is and how to enter. Its `repr` shows no secrets: it goes into logs."""

    place: str
    host: str
    port: int
    path: str | None
    tls: RedisTls | None
    greeting: tuple[bytes, ...]

    @classmethod
    def parse(cls, url: str, *, entry: str = "") -> "RedisAddress":
        """`redis://`, `rediss://` or `unix://`, with what redis-py understands in such a URL. Raises `ValueError`.

        `entry` comes before the names of the user and the password that are looked for.
        """
        told = cast("dict[str, Any]", parse_url(url))
        host, port, path = told.get("host", "localhost"), int(told.get("port", 6379)), told.get("path")
        kind = told.get("connection_class")
        tls = RedisTls(told) if kind is SSLConnection else None
        greeting: list[bytes] = []
        user, password = told.get(f"{entry}username"), told.get(f"{entry}password")
        if password is not None:
            greeting.append(packed("AUTH", *((user,) if user else ()), password))
        if told.get("db"):
            greeting.append(packed("SELECT", str(told["db"])))
        greeting.append(packed("PING"))
        unix = path if kind is UnixDomainSocketConnection else None
        return cls(unix or f"{host}:{port}", host, port, unix, tls, tuple(greeting))

    def at(self, host: str, port: int) -> "RedisAddress":
        """Another server that is entered in the same way."""
        return replace(self, place=f"{host}:{port}", host=host, port=port)

    async def find(self) -> "RedisAddress":
        return self

    def __repr__(self) -> str:
        return self.place


@dataclass(frozen=True, slots=True)
class SentinelAddress:
    """Sentinels, and the master that they are asked for; `entry` is how that one is entered, wherever it is."""

    sentinels: tuple[RedisAddress, ...]
    name: str
    entry: RedisAddress


@dataclass(frozen=True, slots=True)
class ClusterAddress:
    """Some nodes of a cluster; they tell of the others."""

    seeds: tuple[RedisAddress, ...]


def parse_address(url: str) -> RedisAddress | SentinelAddress | ClusterAddress:
    """Raises `ValueError` where this is no URL of a Redis. What is said of passwords and TLS holds for every server of it."""
    several = _SEVERAL.fullmatch(url)
    if several is None:
        return RedisAddress.parse(url)
    scheme, kind, user, hosts, path, query = several.groups(default="")
    if kind == "cluster":
        if path.strip("/") not in {"", "0"}:
            raise ValueError("a cluster has no databases but 0")
        return ClusterAddress(tuple(RedisAddress.parse(f"{scheme}://{user}{host}{query}") for host in hosts.split(",")))
    name, _, database = path.strip("/").partition("/")
    entry = RedisAddress.parse(f"{scheme}://{user}sentinels/{database}{query}")
    places = (host if re.search(r":\d+$", host) else f"{host}:26379" for host in hosts.split(","))
    sentinels = tuple(RedisAddress.parse(f"{scheme}://{place}{query}", entry="sentinel_") for place in places)
    return SentinelAddress(sentinels, name or "mymaster", entry)


def packed(*words: str | bytes) -> bytes:
    return cast("bytes", hiredis.pack_command(words))  # type: ignore[arg-type]  # its stub knows only tuples of one
