"""How many gateways there are, as Redis counts them."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack

import pytest

from app.admission import headcount
from app.admission.redis_limiter import RedisLimiter
from app.tenancy.tenant import Quota, Tenant
from tests.admission.redis_server import RedisServer

Until = Callable[[Callable[[], object]], Awaitable[None]]
KEY = "conch:{_gateways}"


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(headcount, "_EVERY", 0.05)
    monkeypatch.setattr(headcount, "_COUNTS_US", 400_000)


async def test_gateways_count_each_other_and_forget_who_left_or_crashed(
    own_server: RedisServer, hasty: None, until: Until
) -> None:
    url = own_server.start().url
    async with AsyncExitStack() as stack:
        a, b = [await stack.enter_async_context(RedisLimiter(url, budget=5.0)) for _ in range(2)]
        async with RedisLimiter(url, budget=5.0):
            await until(lambda: (a.replicas, b.replicas) == (3, 3))
        await until(lambda: (a.replicas, b.replicas) == (2, 2))
        with own_server.client() as client:
            seconds, micros = client.time()
            client.zadd(KEY, {"crashed": seconds * 1_000_000 + micros + 300_000})
            await until(lambda: a.replicas == 3)
            await until(lambda: a.replicas == 2)
            assert 0 < client.pttl(KEY) <= 401


async def test_what_was_counted_last_holds_when_redis_goes_and_comes_back_empty(
    own_server: RedisServer, until: Until, tenant: Callable[..., Tenant], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(headcount, "_EVERY", 0.4)
    acme = tenant(Quota(0.001, 10))
    url = own_server.start().url
    async with RedisLimiter(url, budget=5.0) as a, RedisLimiter(url, budget=5.0) as b:
        await until(lambda: (a.replicas, b.replicas) == (2, 2))
        own_server.stop()
        await until(lambda: "exact" not in {a.mode, b.mode})
        verdicts = [await limiter.spend(acme, "x", 0, 2.0) for limiter in (a, b) for _ in range(10)]
        assert sum(verdict.refusal is None for verdict in verdicts) == 10
        own_server.start()
        await until(lambda: "degraded" not in {a.mode, b.mode})
        for _ in range(30):
            await asyncio.sleep(0.02)
            assert (a.replicas, b.replicas) == (2, 2)


@pytest.mark.parametrize("value", ["rubbish", ["a"], {"far-ahead": 9e15}])
async def test_a_count_that_is_not_ours_is_made_anew(server: RedisServer, hasty: None, until: Until, value: object) -> None:
    with server.client() as client:
        match value:
            case str():
                client.set(KEY, value)
            case list():
                client.rpush(KEY, *value)
            case dict():
                client.zadd(KEY, value)
        async with RedisLimiter(server.url, budget=5.0) as limiter:
            assert (limiter.replicas, client.zcard(KEY)) == (1, 1)
        await until(lambda: client.zcard(KEY) == 0)


async def test_a_number_that_was_told_is_not_counted(server: RedisServer) -> None:
    async with RedisLimiter(server.url, replicas=7, budget=5.0) as limiter:
        assert limiter.replicas == 7
        with server.client() as client:
            assert not client.exists(KEY)
