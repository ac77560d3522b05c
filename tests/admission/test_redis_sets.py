"""Clusters and Sentinels: who decides when a master dies, or a slot moves."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
import pytest_asyncio

from app.admission.limiter import Verdict
from app.admission.redis_address import ClusterAddress, SentinelAddress, parse_address
from app.admission.redis_cluster import slot_of
from app.admission.redis_limiter import RedisLimiter
from app.local.watchdog import Watchdog
from app.tenancy.tenant import Quota, Tenant
from tests.admission.redis_server import RedisServer
from tests.admission.told import left
from tests.redis_sets import PASSWORD, RedisSet, redis_cluster, redis_sentinels

Make = Callable[..., Tenant]
Until = Callable[[Callable[[], object]], Awaitable[None]]
SLOW = 0.001
PATIENT = 0.5
"""A budget that a busy machine keeps."""


async def spend(limiter: RedisLimiter, tenant: Tenant) -> Verdict:
    return await limiter.spend(tenant, "sentiment", 10, 2.0)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def cluster(tmp_path_factory: pytest.TempPathFactory, watchdog: Watchdog) -> AsyncIterator[RedisSet]:
    """Its last test kills a master of it."""
    async with redis_cluster(tmp_path_factory.mktemp("cluster"), watchdog) as cluster:
        yield cluster


@pytest.mark.parametrize(
    ("url", "seeds", "greetings"),
    [
        ("redis+cluster://h1:1,h2", "(h1:1, h2:6379)", [b"PING"]),
        ("rediss+cluster://u:p@h1/0?ssl_cert_reqs=none", "(h1:6379,)", [b"AUTH", b"PING"]),
    ],
)
def test_a_cluster_is_read_from_its_url(url: str, seeds: str, greetings: list[bytes]) -> None:
    address = parse_address(url)
    assert isinstance(address, ClusterAddress)
    assert repr(address.seeds) == seeds
    assert [command.split(b"\r\n")[2] for command in address.seeds[0].greeting] == greetings
    assert (address.seeds[0].tls is not None) is url.startswith("rediss")


def test_sentinels_are_read_from_their_url_and_have_a_password_of_their_own() -> None:
    address = parse_address("rediss+sentinel://u:s3cret@h1,h2:2,[::1]:3/main/2?sentinel_password=other&ssl_cert_reqs=none")
    assert isinstance(address, SentinelAddress)
    assert repr(address.sentinels) == "(h1:26379, h2:2, ::1:3)"
    assert (address.name, address.entry.tls is not None) == ("main", True)
    assert [command.split(b"\r\n")[2] for command in address.entry.greeting] == [b"AUTH", b"SELECT", b"PING"]
    assert b"other" in address.sentinels[0].greeting[0]
    assert "s3cret" not in repr(address)


def test_a_cluster_has_one_database() -> None:
    with pytest.raises(ValueError, match="no databases"):
        parse_address("redis+cluster://h1/1")


async def test_a_tenant_s_slot_is_the_one_that_redis_thinks_of(cluster: RedisSet) -> None:
    for name in ("acme", "_gateways", "a-b-c", "0"):
        assert slot_of(name) == await cluster.servers[0].ask("CLUSTER", "KEYSLOT", f"conch:{{{name}}}:requests")


async def test_limits_are_exact_on_every_node_and_between_limiters(cluster: RedisSet, tenant: Make) -> None:
    async with RedisLimiter(cluster.url, budget=5.0) as a, RedisLimiter(cluster.url, budget=5.0) as b:
        assert (a.mode, b.mode) == ("exact", "exact")
        for number in range(20):
            acme = tenant(Quota(SLOW, 3, in_flight=5), name=f"spread-{number}")
            verdicts = [await spend(limiter, acme) for limiter in (a, b, a, b)]
            assert [verdict.refusal is None for verdict in verdicts] == [True, True, True, False]
            assert not any(verdict.degraded for verdict in verdicts)
            a.settle(verdicts[0], executed=False)
            assert (await spend(a, acme)).refusal is None
        assert (a.failures, b.failures) == (0, 0)
    assert await cluster.immortal() == []


async def test_a_slot_that_moves_is_followed_and_costs_its_tenant_one_request_at_most(cluster: RedisSet, tenant: Make) -> None:
    acme, key = tenant(Quota(SLOW, 20), name="mover"), "conch:{mover}:requests"
    source = await cluster.owner("mover")
    target = next(server for server in cluster.servers[:3] if server is not source)
    source_id, target_id = await source.ask("CLUSTER", "MYID"), await target.ask("CLUSTER", "MYID")
    async with RedisLimiter(cluster.url, budget=5.0) as limiter:
        assert not (await spend(limiter, acme)).degraded
        await target.ask("CLUSTER", "SETSLOT", slot_of("mover"), "IMPORTING", source_id)
        await source.ask("CLUSTER", "SETSLOT", slot_of("mover"), "MIGRATING", target_id)
        assert not (await spend(limiter, acme)).degraded
        there = (target.address.host, target.address.port, "", 0, 5000)
        await source.ask("MIGRATE", *there, "AUTH", PASSWORD, "KEYS", key)
        assert (await spend(limiter, acme)).degraded
        assert limiter.mode == "exact"
        for server in (target, source, *cluster.servers[:3]):
            await server.ask("CLUSTER", "SETSLOT", slot_of("mover"), "NODE", target_id)
        verdicts = [await spend(limiter, acme) for _ in range(3)]
        assert [verdict.degraded for verdict in verdicts] == [True, False, False]
        assert [*left(verdicts[-1]).values()] == [16]
        assert limiter.mode == "exact"
    assert await target.ask("EXISTS", key) == 1


async def test_a_cluster_starts_late_and_a_seed_that_is_gone_does_no_harm(
    cluster: RedisSet, tenant: Make, unused_tcp_port: int, until: Until
) -> None:
    async with RedisLimiter(f"redis+cluster://127.0.0.1:{unused_tcp_port}") as alone:
        modes = [alone.mode]
        assert "no node of the cluster tells where its slots are" in alone.trouble
        assert (await spend(alone, tenant(Quota(SLOW, 1)))).degraded
    url = cluster.url.replace("@", f"@127.0.0.1:{unused_tcp_port},")
    async with RedisLimiter(url, budget=5.0) as limiter:
        modes.append(limiter.mode)
        assert limiter.trouble == ""
    assert modes == ["degraded", "exact"]


async def test_a_master_that_dies_concerns_its_own_tenants_alone_until_its_replica_takes_over(
    cluster: RedisSet, tenant: Make, until: Until
) -> None:
    burst = 20
    victim = await cluster.owner("victim")
    names = {name: await cluster.owner(name) for name in ("victim", *(f"t{number}" for number in range(12)))}
    theirs = [tenant(Quota(SLOW, 10**6), name=name) for name, owner in names.items() if owner is not victim]
    acme = tenant(Quota(SLOW, burst), name="victim")
    admitted, held = 0, tenant(Quota(in_flight=5), name="victim")
    async with RedisLimiter(cluster.url, budget=PATIENT) as limiter:
        slots = [await spend(limiter, held) for _ in range(5)]
        admitted += sum([(await spend(limiter, acme)).refusal is None for _ in range(burst)])
        assert admitted == burst
        await asyncio.sleep(0.2)  # its replica hears of it
        await victim.peer.kill()
        verdicts: list[Verdict] = []
        async with asyncio.timeout(30):
            while not verdicts or verdicts[-1].degraded or limiter.mode == "degraded":
                verdicts.append(await spend(limiter, acme))
                for other in theirs:
                    verdict = await spend(limiter, other)
                    assert (verdict.degraded, verdict.refusal) == (False, None)
                for slot in slots:
                    limiter.settle(slot, executed=True)
                slots.clear()
                await asyncio.sleep(0.01)
        assert any(verdict.degraded for verdict in verdicts)
        admitted += sum(verdict.refusal is None for verdict in verdicts)
        assert admitted <= 2 * burst
        assert [(await spend(limiter, held)).refusal is None for _ in range(6)] == [True] * 5 + [False]
        new = await cluster.owner("victim")
        assert new is not victim
        await victim.peer.start()
    assert await cluster.immortal() == []


async def test_a_master_that_freezes_is_replaced_as_its_sentinels_say_and_not_taken_back(
    tmp_path: Path, watchdog: Watchdog, tenant: Make, caplog: pytest.LogCaptureFixture
) -> None:
    burst = 20
    acme = tenant(Quota(SLOW, burst))
    async with (
        redis_sentinels(tmp_path, watchdog) as sentinels,
        RedisLimiter(sentinels.url, budget=PATIENT) as limiter,
    ):
        verdicts = [await spend(limiter, acme) for _ in range(burst + 1)]
        assert not any(verdict.degraded for verdict in verdicts)
        admitted = sum(verdict.refusal is None for verdict in verdicts)
        assert admitted == burst
        await asyncio.sleep(0.2)  # its replica hears of it
        master, replica = sentinels.servers
        master.peer.pause()
        async with asyncio.timeout(30):
            other = tenant(Quota(SLOW, 10**6), name="other")
            while not (await spend(limiter, other)).degraded:
                await asyncio.sleep(0.01)
            while (await spend(limiter, other)).degraded:
                admitted += (await spend(limiter, acme)).refusal is None
                await asyncio.sleep(0.01)
        assert burst < admitted <= 2 * burst
        master.peer.resume()
        for _ in range(20):
            assert not (await spend(limiter, other)).degraded
            await asyncio.sleep(0.02)
        assert (await replica.ask("ROLE"))[0] == "master"
        assert await sentinels.immortal() == []
    assert f"Redis at {master.address} can't decide" in caplog.text
    assert "c4nary" not in caplog.text


async def test_sentinels_that_know_no_such_master_or_are_gone_leave_the_limits_local(
    tenant: Make, unused_tcp_port: int, server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    for port in (unused_tcp_port, server.port):
        async with RedisLimiter(f"redis+sentinel://127.0.0.1:{port}/main") as limiter:
            assert limiter.mode == "degraded"
            assert (await spend(limiter, tenant(Quota(SLOW, 1)))).degraded
    assert "main of 127.0.0.1" in caplog.text
