"""Many callers at once, and the tenants that they are of."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import redis.asyncio as client

from tests.gateway.process import RunningGateway
from tests.load.callers import post
from tests.peers import Redis

BODY = b'{"model":"words","inputs":["a"],"timeout_ms":30000}'
SLOW = {"requests_per_second": 0.01, "on_redis_loss": "local"}
ENTRIES: dict[str, dict[str, Any]] = {
    "hundred": {"limits": {**SLOW, "burst": 100}},
    "apart": {"limits": {**SLOW, "burst": 90}},
    "steady": {"limits": {"requests_per_second": 20, "burst": 20}},
    "holder": {"limits": {"in_flight": 2}},
    "busy": {"limits": {"requests_per_second": 100_000, "characters_per_day": 10**9, "in_flight": 1000}},
    "short": {"limits": {**SLOW, "burst": 30, "in_flight": 1000}},
    "shadow": {"limits": {"requests_per_second": 0.01, "burst": 1, "enforce": {"requests": False}}},
    "once": {"limits": {**SLOW, "burst": 1}},
    "leaving": {},
}


async def statuses(gateway: RunningGateway, tenant: str, callers: int, each: int = 1) -> Counter[int]:
    """Of so many requests, all of the first ones at once, each caller on a connection of its own."""
    request = post("/v1/classify", gateway.tenants.keys[tenant], BODY)
    seen: Counter[int] = Counter()

    async def call() -> None:
        reader, writer = await asyncio.open_connection(gateway.address.host, gateway.address.port)
        for _ in range(each):
            writer.write(request)
            head = await reader.readuntil(b"\r\n\r\n")
            length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
            await reader.readexactly(int(length.split(b":")[1]))
            seen[int(head.split()[1])] += 1
        writer.close()

    await asyncio.gather(*(call() for _ in range(callers)))
    return seen


@asynccontextmanager
async def under_load(gateway: RunningGateway, tenant: str, seen: Counter[int]) -> AsyncIterator[None]:
    """Callers with hardly a pause, from before the block until after it; a connection that breaks fails the test."""
    over = asyncio.Event()

    async def load() -> None:
        while not over.is_set():
            seen.update(await statuses(gateway, tenant, callers=1, each=20))
            await asyncio.sleep(0.03)  # the others need a processor too

    callers = [asyncio.create_task(load()) for _ in range(4)]
    await asyncio.sleep(0.2)
    try:
        yield
    finally:
        over.set()
        await asyncio.gather(*callers)


async def immortal(store: Redis) -> list[str]:
    async with client.Redis.from_url(store.url, decode_responses=True) as connection:
        return [str(key) for key in await connection.keys("conch:*") if await connection.ttl(key) == -1]
