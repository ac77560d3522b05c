"""Redis frozen, gone, slow, wiped, demoted or never there: bounded waits, local limits, and exact ones again by itself."""

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from app.admission.limiter import Verdict
from app.admission.redis_address import RedisAddress, packed
from app.admission.redis_limiter import RedisLimiter
from app.admission.redis_link import RedisLink
from app.admission.redis_wire import RedisSilent
from app.errors import Refusal, Unavailable
from app.tenancy.tenant import Quota, Tenant
from tests.admission.redis_server import RedisServer
from tests.admission.told import left

Make = Callable[..., Tenant]
Until = Callable[[Callable[[], object]], Awaitable[None]]
SLOW = 0.001
PATIENT = 0.25
"""A budget that a busy machine keeps, where a decision is expected from Redis."""
PLENTY = Quota(requests_per_second=1e6, burst=10**6, in_flight=1000)


async def spend(limiter: RedisLimiter, tenant: Tenant, characters: int = 0, lifetime: float = 2.0) -> Verdict:
    return await limiter.spend(tenant, "sentiment", characters, lifetime)


@contextlib.asynccontextmanager
async def mute_server() -> AsyncIterator[str]:
    """Accepts, and never says a word."""

    async def hold(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.closing(writer):
            await reader.read()

    server = await asyncio.start_server(hold, "127.0.0.1", 0)
    async with server:
        yield f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}"


@contextlib.asynccontextmanager
async def road(port: int) -> AsyncIterator[tuple[int, list[float]]]:
    """A road to a server on which every chunk takes `delay[0]` seconds each way."""
    delay = [0.0]

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError), contextlib.closing(writer):
            while chunk := await reader.read(65536):
                await asyncio.sleep(delay[0])
                writer.write(chunk)

    async def join(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(carry(reader, far_writer), carry(far_reader, writer))

    entrance = await asyncio.start_server(join, "127.0.0.1", 0)
    async with entrance:
        yield entrance.sockets[0].getsockname()[1], delay


async def test_a_frozen_redis_costs_a_bounded_wait_then_nothing_and_comes_back(
    own_server: RedisServer, tenant: Make, until: Until, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "conch.admission")
    acme = tenant(PLENTY)
    async with RedisLimiter(own_server.start().url, budget=PATIENT) as limiter:
        assert not (await spend(limiter, acme)).degraded
        with own_server.frozen():
            before = time.monotonic()
            verdicts = await asyncio.gather(*(spend(limiter, acme) for _ in range(200)))
            assert PATIENT <= time.monotonic() - before < 10 * PATIENT
            assert all(verdict.degraded and verdict.refusal is None for verdict in verdicts)
            assert limiter.mode == "degraded"
            failures = limiter.failures
            assert failures == 200
            for _ in range(1000):
                assert (await spend(limiter, acme)).degraded
            assert limiter.failures == failures
        await until(lambda: limiter.mode == "exact")
        assert not (await spend(limiter, acme)).degraded
    assert [record.levelname for record in caplog.records] == ["INFO", "WARNING", "INFO"]


async def test_what_a_frozen_redis_admits_after_all_is_given_back(own_server: RedisServer, tenant: Make, until: Until) -> None:
    acme = tenant(Quota(SLOW, 10, in_flight=10))
    async with RedisLimiter(own_server.start().url, budget=PATIENT) as limiter:
        with own_server.frozen():
            await asyncio.gather(*(spend(limiter, acme) for _ in range(8)))
        await until(lambda: limiter.mode == "exact")
        with own_server.client() as client:
            await until(lambda: client.zcard("conch:{acme}:in_flight") == 0)
        verdict = await spend(limiter, acme)
        assert [*left(verdict).values()] == [9, 9]


async def test_slots_given_back_while_redis_was_away_are_free_when_it_returns(
    own_server: RedisServer, tenant: Make, until: Until
) -> None:
    acme = tenant(Quota(in_flight=10))
    async with RedisLimiter(own_server.start().url, budget=PATIENT) as limiter:
        verdicts = [await spend(limiter, acme, lifetime=3600.0) for _ in range(10)]
        with own_server.frozen():
            await asyncio.gather(*(spend(limiter, tenant(PLENTY, name="other")) for _ in range(5)))
            assert limiter.mode == "degraded"
            for verdict in verdicts:
                limiter.settle(verdict, executed=True)
        await until(lambda: limiter.mode == "exact")
        assert (await spend(limiter, acme)).refusal is None


@pytest.mark.parametrize("there", ["refused", "mute"])
async def test_the_gateway_starts_without_redis(tenant: Make, there: str, unused_tcp_port: int) -> None:
    acme = tenant(Quota(SLOW, 2))
    async with mute_server() as mute:
        url = mute if there == "mute" else f"redis://127.0.0.1:{unused_tcp_port}"
        async with RedisLimiter(url) as limiter:
            assert limiter.mode == "degraded"
            verdicts = [await spend(limiter, acme) for _ in range(3)]
            assert [verdict.refusal is None for verdict in verdicts] == [True, True, False]
            assert all(verdict.degraded for verdict in verdicts)
            assert limiter.failures == 0


async def test_limits_become_exact_when_redis_appears_and_again_after_it_was_killed(
    own_server: RedisServer, tenant: Make, until: Until, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "conch.admission")
    acme = tenant(PLENTY)
    async with RedisLimiter(own_server.url, budget=PATIENT) as limiter:
        assert (await spend(limiter, acme)).degraded
        for _ in range(2):
            own_server.start()
            await until(lambda: limiter.mode == "exact")
            assert not (await spend(limiter, acme)).degraded
            own_server.stop()
            await until(lambda: limiter.mode == "degraded")
            assert (await spend(limiter, acme)).degraded
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO", "WARNING", "INFO", "WARNING"]


async def test_an_idle_connection_that_dies_costs_no_request_anything(own_server: RedisServer, until: Until) -> None:
    async with RedisLimiter(own_server.start().url, budget=PATIENT) as limiter:
        own_server.stop()
        await until(lambda: limiter.mode == "degraded")
        assert limiter.failures == 0


async def test_a_slow_redis_is_left_alone_until_it_is_fast_again(server: RedisServer, tenant: Make, until: Until) -> None:
    acme = tenant(PLENTY)
    async with road(server.port) as (port, delay), RedisLimiter(f"redis://127.0.0.1:{port}", budget=PATIENT) as limiter:
        assert not (await spend(limiter, acme)).degraded
        delay[0] = 0.3
        verdicts = [await spend(limiter, acme) for _ in range(6)]
        assert all(verdict.degraded for verdict in verdicts)
        assert limiter.failures == 5
        await asyncio.sleep(1)
        assert limiter.mode == "degraded"
        delay[0] = 0.0
        await until(lambda: limiter.mode == "exact")
        assert not (await spend(limiter, acme)).degraded
        await asyncio.sleep(1)
    with server.client() as client:
        assert client.zcard("conch:{acme}:in_flight") == 2


@pytest.mark.parametrize("wipe", ["script_flush", "flushall"])
async def test_a_wipe_under_load_fails_no_request(server: RedisServer, tenant: Make, wipe: str) -> None:
    acme = tenant(Quota(SLOW, 100, in_flight=10_000, characters_per_day=10**9))
    async with RedisLimiter(server.url, budget=5.0) as limiter:
        verdicts: list[Verdict] = []

        async def caller() -> None:
            for _ in range(50):
                verdict = await spend(limiter, acme, 1)
                verdicts.append(verdict)
                limiter.settle(verdict, executed=len(verdicts) % 2 == 0)

        async def wiper() -> None:
            with server.client() as client:
                for _ in range(3):
                    await asyncio.sleep(0.01)
                    await asyncio.to_thread(getattr(client, wipe))

        await asyncio.gather(wiper(), *(caller() for _ in range(40)))
        assert limiter.failures == 0
        assert not any(verdict.degraded for verdict in verdicts)
        kept = sum(verdict.refusal is None for i, verdict in enumerate(verdicts, 1) if i % 2 == 0)
        assert kept <= 100 * (1 if wipe == "script_flush" else 4)


@pytest.mark.parametrize(
    ("pattern", "opens_after"),
    [
        ("fffff", 5),
        ("ffffaffff", None),
        ("ffa" * 10, 14),
        ("fa" * 20, 19),
        ("faa" * 50, None),
        ("a" * 9 + "f" * 4 + "a" * 9, None),
    ],
)
async def test_the_breaker_opens_at_five_failures_in_a_row_or_ten_that_outnumber_the_answers(
    server: RedisServer, pattern: str, opens_after: int | None
) -> None:
    probe = packed("PING")
    link = RedisLink(RedisAddress.parse(server.url), probes=[probe], budget=5.0)
    await link.open()
    opened = None
    for number, event in enumerate(pattern, 1):
        if event == "a":
            link.answered()
        else:
            link.failed(RedisSilent("no reply within the budget"))
        if link.wire is None:
            opened = number
            break
    await link.close()
    assert opened == opens_after


async def test_a_demoted_redis_is_left_and_taken_again_once_it_is_master(
    own_server: RedisServer, tenant: Make, until: Until
) -> None:
    acme = tenant(PLENTY)
    async with RedisLimiter(own_server.start().url, budget=PATIENT) as limiter:
        with own_server.client() as client:
            client.replicaof("127.0.0.1", "1")
            assert (await spend(limiter, acme)).degraded
            assert limiter.mode == "degraded"
            await asyncio.sleep(0.2)
            assert limiter.mode == "degraded"
            client.replicaof("no", "one")
        await until(lambda: limiter.mode == "exact")
        assert not (await spend(limiter, acme)).degraded


async def test_a_password_is_sent_and_a_wrong_one_is_never_logged(
    own_server: RedisServer, tenant: Make, caplog: pytest.LogCaptureFixture
) -> None:
    own_server.password = "c4nary-right"
    own_server.start()
    async with RedisLimiter(own_server.url, budget=PATIENT) as limiter:
        assert limiter.mode == "exact"
    async with RedisLimiter(own_server.url.replace("right", "wrong")) as limiter:
        assert limiter.mode == "degraded"
        assert (await spend(limiter, tenant(PLENTY))).degraded
    assert "WRONGPASS" in caplog.text
    assert "c4nary" not in caplog.text


async def test_a_unix_socket_will_do(own_server: RedisServer, tmp_path: Path) -> None:
    own_server.start("--unixsocket", str(tmp_path / "s"))
    async with RedisLimiter(f"unix://{tmp_path / 's'}?db=3") as limiter:
        assert limiter.mode == "exact"


async def test_the_policy_of_a_quota_says_what_holds_without_redis(tenant: Make, unused_tcp_port: int) -> None:
    quotas = {
        "open": Quota(SLOW, 1, on_redis_loss="open"),
        "local": Quota(SLOW, 1, on_redis_loss="local"),
        "closed": Quota(SLOW, 1, on_redis_loss="closed"),
        "shadow": Quota(SLOW, 1, on_redis_loss="closed", shadow=frozenset({"requests"})),
    }
    outcomes = {}
    async with RedisLimiter(f"redis://127.0.0.1:{unused_tcp_port}") as limiter:
        for name, quota in quotas.items():
            outcomes[name] = [await outcome(limiter, tenant(quota, name=name)) for _ in range(2)]
    assert outcomes == {
        "open": [None, None],
        "local": [None, "rate_limited"],
        "closed": ["unavailable 1", "unavailable 1"],
        "shadow": [None, None],
    }


async def outcome(limiter: RedisLimiter, tenant: Tenant) -> str | None:
    try:
        verdict = await spend(limiter, tenant)
    except Unavailable as refusal:
        return f"{refusal.code} {refusal.retry_after}"
    assert verdict.degraded
    return verdict.refusal.code if isinstance(verdict.refusal, Refusal) else None


async def test_three_replicas_without_redis_admit_no_more_than_the_limit(tenant: Make, unused_tcp_port: int) -> None:
    acme = tenant(Quota(SLOW, 100, in_flight=60))
    url = f"redis://127.0.0.1:{unused_tcp_port}"
    async with RedisLimiter(url, replicas=3) as a, RedisLimiter(url, replicas=3) as b, RedisLimiter(url, replicas=3) as c:
        admitted = 0
        for _ in range(100):
            for limiter in (a, b, c):
                verdict = await spend(limiter, acme)
                limiter.settle(verdict, executed=True)
                admitted += verdict.refusal is None
    assert 90 <= admitted <= 100


async def test_a_stall_of_our_own_is_not_blamed_on_redis(server: RedisServer, tenant: Make) -> None:
    acme = tenant(PLENTY)
    async with RedisLimiter(server.url, budget=PATIENT) as limiter:
        for _ in range(5):
            asking = [asyncio.create_task(spend(limiter, acme)) for _ in range(10)]
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            time.sleep(2 * PATIENT)  # noqa: ASYNC251  the stall
            degraded = sum(verdict.degraded for verdict in await asyncio.gather(*asking))
            assert (degraded, limiter.failures, limiter.trouble) == (0, 0, "")
