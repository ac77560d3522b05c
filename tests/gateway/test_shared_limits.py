"""Limits that several gateways share: exact through all of them, and bounded when a gateway or Redis dies under load."""

import asyncio
import os
import shutil
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio
import redis.asyncio as client

from app.local.watchdog import Watchdog
from app.tenancy.key import digest
from tests.fakes.triton import FakeTriton, never
from tests.gateway.crowd import ENTRIES, immortal, statuses, under_load
from tests.gateway.problems import assert_problem
from tests.gateway.process import RunningGateway
from tests.gateway.tenants import Tenants
from tests.peers import Redis
from tests.redis_sets import RedisSet, redis_cluster, redis_sentinels

Start = Callable[..., Awaitable[RunningGateway]]


@pytest.fixture(scope="module")
def crowd(tmp_path_factory: pytest.TempPathFactory) -> Tenants:
    return Tenants.write(tmp_path_factory.mktemp("crowd") / "tenants.yaml", ENTRIES)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def store(watchdog: Watchdog, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Redis]:
    redis = await Redis.start(tmp_path_factory.mktemp("store"), watchdog)
    yield redis
    await redis.peer.stop()


@pytest.fixture(scope="module")
def settings(_stage: FakeTriton, staged_routes: Path, crowd: Tenants) -> dict[str, str]:
    # The budget has tests of its own; here a busy machine must not end in a local decision.
    known = {"TRITON": _stage.address, "ROUTES_FILE": str(staged_routes), "TENANTS_FILE": str(crowd.path)}
    return {**known, "REDIS_BUDGET_MS": "3000"}


@pytest_asyncio.fixture(loop_scope="session")
async def start(start_gateway: Start, stage: FakeTriton, settings: dict[str, str], crowd: Tenants) -> Start:
    async def start(redis_url: str, **more: str) -> RunningGateway:
        return replace(await start_gateway(**{**settings, "REDIS_URL": redis_url, **more}), tenants=crowd)

    return start


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def lone(gateways: Start, settings: dict[str, str], store: Redis, crowd: Tenants) -> AsyncIterator[RunningGateway]:
    gateway = await gateways(**settings, REDIS_URL=store.url)
    yield replace(gateway, tenants=crowd)
    await gateway.peer.stop()


async def passed(gateways: Sequence[RunningGateway], tenant: str, callers: int) -> int:
    """How many got in, through all of them at once; all others were told 429."""
    seen = sum(await asyncio.gather(*(statuses(gateway, tenant, callers) for gateway in gateways)), Counter())
    assert seen.keys() <= {200, 429}
    assert seen.total() == callers * len(gateways)
    return seen[200]


async def test_three_gateways_admit_exactly_100_of_2000_and_share_the_limit_when_redis_dies(start: Start, store: Redis) -> None:
    gateways = await asyncio.gather(*(start(store.url) for _ in range(3)))
    assert await passed(gateways, "hundred", 667) == 100
    assert await immortal(store) == []
    async with asyncio.timeout(30):
        while [await gateway.count("conch_limiter_replicas") for gateway in gateways] != [3, 3, 3]:
            await asyncio.sleep(0.1)
    await store.peer.kill()
    try:
        while {(await gateway.status())["limiter"] for gateway in gateways} != {"degraded"}:
            await asyncio.sleep(0.05)
        assert 0.9 * 90 <= await passed(gateways, "apart", 60) <= 1.1 * 90
        assert [(await gateway.status())["replicas"] for gateway in gateways] == [3, 3, 3]
    finally:
        await store.peer.start()


async def test_slots_of_a_gateway_that_is_killed_are_free_when_their_leases_end(
    start: Start, stage: FakeTriton, store: Redis
) -> None:
    dying, other = await asyncio.gather(*(start(store.url) for _ in range(2)))
    stage.behaviours["words"] = never
    held = [asyncio.create_task(dying.classify("a", tenant="holder", model="words", timeout_ms=500)) for _ in range(2)]
    async with client.Redis.from_url(store.url, decode_responses=True) as connection:
        while await connection.zcard("conch:{holder}:in_flight") < 2:
            await asyncio.sleep(0.01)
        await dying.peer.kill()
        await asyncio.gather(*held, return_exceptions=True)
        stage.behaviours.clear()
        assert_problem(await other.classify("a", tenant="holder", model="words"), 429, "too_many_in_flight")
        leases = await connection.zrange("conch:{holder}:in_flight", 0, -1, withscores=True)
        ends = [float(lease[1]) for lease in leases]
        seconds, micros = await connection.time()
        assert max(ends) <= (seconds * 1e6 + micros) + 5_500_000
        await asyncio.sleep(max(0.0, max(ends) / 1e6 - seconds - micros / 1e6) + 0.01)
    assert (await other.classify("a", tenant="holder", model="words")).status_code == 200
    assert await immortal(store) == []


async def test_one_gateway_keeps_its_promises_to_those_who_come_too_often(lone: RunningGateway) -> None:
    rate, burst, clump = 20, 20, 6
    loop = asyncio.get_running_loop()
    began, admitted = loop.time(), 0
    for number in range(20):
        await asyncio.sleep(began + number * clump / (1.5 * rate) - loop.time())
        elapsed = loop.time() - began
        admitted += (await statuses(lone, "steady", 1, clump))[200]
    assert 0.95 * (rate * elapsed + burst) <= admitted <= rate * (loop.time() - began) + burst
    assert await lone.count("conch_limiter_decisions_total", mode="memory", decision="rate_limited") > 0


async def test_what_shadow_would_have_refused_is_counted_and_passes(lone: RunningGateway) -> None:
    asked = await lone.count("conch_redis_seconds_count", outcome="ok")
    assert await statuses(lone, "shadow", 1, 3) == {200: 3}
    assert await lone.count("conch_limiter_shadowed_total", limit="requests") == 2
    assert await lone.count("conch_redis_seconds_count", outcome="ok") == asked + 3


async def test_what_is_refused_before_it_is_read_says_the_same_as_what_redis_refuses(lone: RunningGateway) -> None:
    before = await lone.count("conch_limiter_decisions_total", mode="memory")
    passed, asked, *remembered = [await lone.classify("a", tenant="once", model="words") for _ in range(4)]
    assert passed.status_code == 200
    remembered.append(await lone.post("/v1/embeddings", {"no": "such body"}, tenant="once"))
    for answer in remembered:
        assert_problem(answer, 429, "rate_limited")
        assert answer.headers["ratelimit-policy"] == asked.headers["ratelimit-policy"]
        assert answer.headers["ratelimit"].startswith('"requests";r=0;t=')
        assert abs(int(answer.headers["retry-after"]) - int(asked.headers["retry-after"])) <= 1
    assert await lone.count("conch_limiter_decisions_total", mode="memory") > before
    assert_problem(await lone.get("/v1/models/nowhere", tenant="once"), 404, "unknown_model")


@pytest.mark.parametrize("wipe", ["script_flush", "flushall"])
async def test_a_wipe_of_redis_under_load_fails_no_request(lone: RunningGateway, store: Redis, wipe: str) -> None:
    seen: Counter[int] = Counter()
    async with client.Redis.from_url(store.url) as connection, under_load(lone, "busy", seen):
        for _ in range(3):
            await getattr(connection, wipe)()
            await asyncio.sleep(0.1)
    assert seen.keys() == {200}
    assert await lone.count("conch_limiter_decisions_total", mode="local") == 0
    assert await immortal(store) == []


async def test_tenants_are_replaced_under_load_and_a_revoked_key_is_refused_within_two_seconds(
    lone: RunningGateway, crowd: Tenants
) -> None:
    assert (await lone.classify("a", tenant="leaving", model="words")).status_code == 200
    seen: Counter[int] = Counter()
    async with under_load(lone, "busy", seen):
        for entries in ({name: of for name, of in ENTRIES.items() if name != "leaving"}, ENTRIES):
            crowd.rewrite(entries)
            wanted = 200 if "leaving" in entries else 401
            async with asyncio.timeout(2):
                while (await lone.classify("a", tenant="leaving", model="words")).status_code != wanted:
                    await asyncio.sleep(0.05)
    assert seen.keys() == {200}
    assert await lone.count("conch_config_reload_failures") == 0


async def test_ten_thousand_tenants_come_under_load_and_a_gateway_that_is_killed_amid_that_leaves_nothing_behind(
    start: Start, stage: FakeTriton, store: Redis, tmp_path: Path
) -> None:
    """The one that is to die has its tenants in a folder, and the many come through a pipe, of which it never sees the end."""
    few, keys = tmp_path / "few", [f"key-of-{number}" for number in range(10_000)]
    few.mkdir()
    tenants = Tenants.write(tmp_path / "tenants.yaml", ENTRIES)
    shutil.copy(tenants.path, few)
    started = await asyncio.gather(*(start(store.url, TENANTS_FILE=str(path)) for path in (few, tenants.path)))
    dying, other = (replace(gateway, tenants=tenants) for gateway in started)
    stage.behaviours["vectors"] = never
    seen: Counter[int] = Counter()
    async with client.Redis.from_url(store.url) as connection, under_load(other, "busy", seen):
        with tenants.path.open("ab") as file:
            file.write(text(keys).removeprefix(b"tenants:\n"))
        pipe = few / "many.yaml"
        os.mkfifo(pipe)
        with await asyncio.to_thread(pipe.open, "wb", 0) as inlet:  # opens once somebody reads there
            await asyncio.to_thread(inlet.write, text(keys[:5000]))
            body = {"model": "vectors", "input": "a", "timeout_ms": 5000}
            held = [asyncio.create_task(dying.post("/v1/embeddings", body, tenant="holder")) for _ in range(2)]
            while await connection.zcard("conch:{holder}:in_flight") < 2:
                await asyncio.sleep(0.01)
            assert (await dying.status())["files"]["tenants"]["generation"] == 1
            inlet.write(b"  ")  # still read
            await dying.peer.kill()
            with pytest.raises(BrokenPipeError):
                inlet.write(b"  ")
        await asyncio.gather(*held, return_exceptions=True)
        leases = await connection.zrange("conch:{holder}:in_flight", 0, -1, withscores=True)
        seconds, _ = await connection.time()
        assert max(float(lease[1]) for lease in leases) / 1e6 <= seconds + 11
        pipe.unlink()
        pipe.write_bytes(text(keys))
        async with asyncio.timeout(60):
            while (await other.status())["files"]["tenants"]["generation"] == 1:
                await asyncio.sleep(0.1)
            await dying.peer.start()
    assert seen.keys() == {200}
    for gateway in (dying, other):
        answer = await gateway.client.get("/v1/models", headers={"x-api-key": keys[-1]})
        assert [card["id"] for card in answer.json()["data"]] == ["words"]
    assert await immortal(store) == []


def text(keys: Sequence[str]) -> bytes:
    """Of a file with a tenant for each key."""
    entry = '  of-{}: {{plan: plain, models: [words], keys: [{{id: k, sha256: "{}"}}]}}\n'
    return "".join(["tenants:\n", *(entry.format(key, digest(key.encode()).hex()) for key in keys)]).encode()


async def killed_under_load(gateway: RunningGateway, redis: RedisSet, victim: int) -> None:
    burst, seen, admitted = 30, Counter[int](), Counter[int]()
    admitted.update(await statuses(gateway, "short", 5, 10))
    assert admitted[200] == burst
    await asyncio.sleep(0.2)  # a replica hears of it
    async with under_load(gateway, "busy", seen):
        await redis.servers[victim].peer.kill()
        async with asyncio.timeout(30):
            while (await gateway.status())["limiter"] == "exact":
                admitted.update(await statuses(gateway, "short", 5, 2))
            while (await gateway.status())["limiter"] == "degraded":
                admitted.update(await statuses(gateway, "short", 5, 2))
                await asyncio.sleep(0.05)
        admitted.update(await statuses(gateway, "short", 5, 2))
    assert seen.keys() == {200}
    assert admitted.keys() == {200, 429}
    assert admitted[200] <= 2 * burst
    assert (await gateway.classify("a", tenant="busy", model="words")).headers.get("conch-limiter") is None
    assert await redis.immortal() == []


async def test_a_cluster_s_master_dies_under_load_and_no_request_fails(
    start: Start, watchdog: Watchdog, tmp_path: Path
) -> None:
    async with redis_cluster(tmp_path, watchdog) as redis:
        gateway = await start(redis.url, REDIS_BUDGET_MS="500")
        owner = await redis.owner("short")
        await killed_under_load(gateway, redis, redis.servers.index(owner))


async def test_a_master_with_sentinels_dies_under_load_and_no_request_fails(
    start: Start, watchdog: Watchdog, tmp_path: Path
) -> None:
    async with redis_sentinels(tmp_path, watchdog) as redis:
        gateway = await start(redis.url, REDIS_BUDGET_MS="500")
        await killed_under_load(gateway, redis, 0)
