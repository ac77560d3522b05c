import asyncio
import random
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from app.admission.account import Account
from app.admission.limiter import Verdict
from app.admission.local_limiter import LocalLimiter
from app.admission.redis_limiter import RedisLimiter
from app.admission.terms import Terms
from app.errors import InvalidInput, QuotaExhausted, RateLimited, TooManyInFlight
from app.tenancy.tenant import Quota, Tenant
from tests.admission.redis_server import RedisServer
from tests.admission.told import left

Make = Callable[..., Tenant]
SLOW = 0.001
"""Requests per second, so few that none comes back while a test runs."""


async def spend(limiter: RedisLimiter, tenant: Tenant, characters: int = 0, route: str = "sentiment") -> Verdict:
    verdict = await limiter.spend(tenant, route, characters, 2.0)
    assert not verdict.degraded
    return verdict


async def until_settled(limiter: RedisLimiter) -> None:
    """Fire-and-forget commands are through once a later command of the same connection is answered."""
    await limiter.spend(Tenant("other", "", (), Quota(in_flight=1000)), "x", 0, 0.0)


CONTENDER = """
import asyncio, sys
from app.admission.redis_limiter import RedisLimiter
from app.tenancy.tenant import Quota, Tenant

async def main():
    tenant = Tenant("acme", "", (), Quota(requests_per_second=0.001, burst=100, characters_per_day=10**6, in_flight=1000))
    async with RedisLimiter(sys.argv[1], budget=5.0) as limiter:
        print("ready", flush=True)
        sys.stdin.readline()
        verdicts = await asyncio.gather(*(limiter.spend(tenant, "x", 10, 60.0) for _ in range(667)))
        assert not any(verdict.degraded for verdict in verdicts)
        print(sum(verdict.refusal is None for verdict in verdicts), flush=True)

asyncio.run(main())
"""


async def test_three_processes_admit_exactly_100_of_2000_concurrent_requests(server: RedisServer) -> None:
    pipe = asyncio.subprocess.PIPE
    root = Path(__file__).parents[2]
    start = (sys.executable, "-c", CONTENDER, server.url)
    processes = [await asyncio.create_subprocess_exec(*start, cwd=root, stdin=pipe, stdout=pipe) for _ in range(3)]
    for process in processes:
        assert process.stdout is not None
        assert await process.stdout.readline() == b"ready\n"
    outputs = await asyncio.gather(*(process.communicate(b"go\n") for process in processes))
    assert sum(int(output) for output, _ in outputs) == 100
    with server.client() as client:
        assert client.zcard("conch:{acme}:in_flight") == 100
        assert client.get("conch:{acme}:daily").endswith(":1000")


async def test_what_one_limit_refuses_spends_nothing_from_the_others(
    limiter: RedisLimiter, tenant: Make, server: RedisServer
) -> None:
    acme = tenant(Quota(SLOW, 9, 60 * SLOW, 100, 9, 100), pii=Quota(SLOW, 1))
    await spend(limiter, acme, 10, "pii")
    with server.client() as client:
        before = {key: client.get(key) for key in client.scan_iter("conch:{acme}:*") if "in_flight" not in key}
        verdict = await spend(limiter, acme, 10, "pii")
        assert isinstance(verdict.refusal, RateLimited)
        assert left(verdict) == {"requests": 8, "characters": 90, "in_flight": 8, "daily": 90, "pii-requests": 0}
        assert {key: client.get(key) for key in before} == before
        assert client.zcard("conch:{acme}:in_flight") == 1


@pytest.mark.parametrize(
    ("quota", "kind"),
    [
        (Quota(requests_per_second=SLOW, burst=1), RateLimited),
        (Quota(characters_per_minute=60 * SLOW, characters_burst=10), RateLimited),
        (Quota(in_flight=1), TooManyInFlight),
        (Quota(characters_per_day=10), QuotaExhausted),
    ],
)
async def test_each_kind_refuses_and_gives_back_what_was_not_executed(
    limiter: RedisLimiter, tenant: Make, server: RedisServer, quota: Quota, kind: type[Exception]
) -> None:
    acme = tenant(quota)
    for _ in range(5):
        verdict = await spend(limiter, acme, 10)
        assert verdict.refusal is None
        assert type((await spend(limiter, acme, 10)).refusal) is kind
        limiter.settle(verdict, executed=False)
    verdict = await spend(limiter, acme, 10)
    limiter.settle(verdict, executed=True)
    again = await spend(limiter, acme, 10)
    assert (again.refusal is None) is (kind is TooManyInFlight)


async def test_settling_a_refusal_or_an_unlimited_request_changes_nothing(
    limiter: RedisLimiter, tenant: Make, server: RedisServer
) -> None:
    free = await spend(limiter, tenant(Quota()), 10**9)
    assert (free.refusal, free.headers) == (None, ())
    acme = tenant(Quota(SLOW, 1), name="other")
    await spend(limiter, acme)
    refused = await spend(limiter, acme)
    for verdict in (free, refused):
        limiter.settle(verdict, executed=False)
    assert (await spend(limiter, acme)).refusal is not None


async def test_waiting_exactly_as_long_as_told_succeeds(limiter: RedisLimiter, tenant: Make) -> None:
    tenants = [tenant(Quota(0.9, 2, 60 * 9.7, 20), name=f"t{i}") for i in range(20)]

    async def exhaust(acme: Tenant) -> None:
        for _ in range(2):
            assert (await spend(limiter, acme, 10)).refusal is None
            await asyncio.sleep(random.random() * 0.1)
        refusal = (await spend(limiter, acme, 10)).refusal
        assert refusal is not None
        assert refusal.retry_after in {1, 2}
        await asyncio.sleep(refusal.retry_after)
        assert (await spend(limiter, acme, 10)).refusal is None

    await asyncio.gather(*(exhaust(acme) for acme in tenants))


async def test_what_waiting_cannot_help_is_a_422(limiter: RedisLimiter, tenant: Make) -> None:
    acme = tenant(Quota(characters_per_minute=60, characters_burst=100), pii=Quota(characters_per_day=50))
    with pytest.raises(InvalidInput, match=r"60 characters per minute .* at most 100"):
        await spend(limiter, acme, 101)
    with pytest.raises(InvalidInput, match=r"50 characters to pii per day .* at most 50"):
        await spend(limiter, acme, 51, "pii")
    assert (await spend(limiter, acme, 100)).refusal is None


async def test_a_shadow_limit_is_reported_and_refuses_nothing(limiter: RedisLimiter, tenant: Make) -> None:
    acme = tenant(Quota(SLOW, 1, in_flight=2, characters_per_day=5, shadow=frozenset({"requests", "daily"})))
    verdicts = [await spend(limiter, acme, 5), await spend(limiter, acme, 6), await spend(limiter, acme, 6)]
    assert [type(verdict.refusal) for verdict in verdicts] == [type(None), type(None), TooManyInFlight]
    assert [verdict.shadowed for verdict in verdicts] == [(), ("requests", "daily"), ("requests", "daily")]
    assert [left(verdict) for verdict in verdicts] == [{"in_flight": 1}, {"in_flight": 0}, {"in_flight": 0}]


async def test_a_refusal_for_want_of_a_slot_says_how_long_requests_last_here(limiter: RedisLimiter, tenant: Make) -> None:
    acme = tenant(Quota(in_flight=1))
    for seconds, retry_after in ((1.01, 1), (0.0, 2)):
        running = await spend(limiter, acme)
        refusal = (await spend(limiter, acme)).refusal
        assert isinstance(refusal, TooManyInFlight)
        assert refusal.retry_after == retry_after
        await asyncio.sleep(seconds)
        limiter.settle(running, executed=True)


async def test_a_slot_whose_holder_crashed_is_free_after_its_lease(server: RedisServer, tenant: Make) -> None:
    acme = tenant(Quota(in_flight=1))
    async with RedisLimiter(server.url, margin=0.3, budget=5.0) as crashed:
        await crashed.spend(acme, "sentiment", 0, 0.2)
    async with RedisLimiter(server.url, budget=5.0) as limiter:
        assert isinstance((await spend(limiter, acme)).refusal, TooManyInFlight)
        await asyncio.sleep(0.55)
        assert (await spend(limiter, acme)).refusal is None


async def test_what_is_settled_last_still_leaves_when_the_limiter_closes(server: RedisServer, tenant: Make) -> None:
    acme = tenant(Quota(SLOW, 1, in_flight=1))
    async with RedisLimiter(server.url, budget=5.0) as closing:
        closing.settle(await spend(closing, acme), executed=False)
    async with RedisLimiter(server.url, budget=5.0) as limiter:
        assert (await spend(limiter, acme)).refusal is None


async def test_a_waiter_that_was_cancelled_gives_everything_back(
    limiter: RedisLimiter, tenant: Make, server: RedisServer
) -> None:
    acme = tenant(Quota(SLOW, 100, 60 * SLOW, 1000, 100, 1000))
    chance = random.Random(11)
    for _ in range(50):
        tasks = [asyncio.create_task(spend(limiter, acme, 10)) for _ in range(100)]
        for _ in range(chance.randrange(8)):
            await asyncio.sleep(0)
        for task in tasks:
            task.cancel()
        for outcome in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(outcome, Verdict):
                limiter.settle(outcome, executed=False)
            else:
                assert isinstance(outcome, asyncio.CancelledError)
        await until_settled(limiter)
        await until_settled(limiter)
    assert left(await spend(limiter, acme, 10)) == {"requests": 99, "characters": 990, "in_flight": 99, "daily": 990}


async def test_redis_and_the_local_limiter_agree(server: RedisServer, tenant: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """The oracle is given Redis's own reading of the clock, so that both see the same moments."""
    quota = Quota(50, 5, 60 * 400, 150, 3, 3000, shadow=frozenset({"daily"}))
    acme = tenant(quota, pii=Quota(20, 2, characters_per_day=300))
    chance = random.Random(5)
    moments: list[int] = []
    monkeypatch.setattr(Account, "remember", lambda account, ruling, at: moments.append(ruling.now))
    monkeypatch.setattr(Terms, "lasted", lambda terms, microseconds: None)  # that is each one's own guess
    local = LocalLimiter(clock=lambda: moments[-1], margin=0.02)
    held: list[tuple[Verdict, Verdict]] = []
    seen = set()
    async with RedisLimiter(server.url, margin=0.02, budget=5.0) as limiter:
        for _ in range(1500):
            route, characters = chance.choice(["pii", "x"]), chance.choice([0, 1, 7, 60, 150])
            exact = await limiter.spend(acme, route, characters, 0.01)
            if exact.refusal is None:
                moments.append(exact.receipt.at)  # type: ignore[attr-defined]
            mine = await local.spend(acme, route, characters, 0.01)
            assert (exact.headers, exact.shadowed) == (mine.headers, mine.shadowed)
            assert type(exact.refusal) is type(mine.refusal)
            assert str(exact.refusal) == str(mine.refusal)
            seen.add(type(exact.refusal))
            if exact.refusal is None:
                held.append((exact, mine))
            if held and chance.random() < 0.3:
                executed = chance.random() < 0.5
                exact, mine = held.pop(chance.randrange(len(held)))
                limiter.settle(exact, executed=executed)
                local.settle(mine, executed=executed)
            if chance.random() < 0.2:
                await asyncio.sleep(chance.random() * 0.03)
    assert seen == {type(None), RateLimited, TooManyInFlight, QuotaExhausted}


CORRUPT = [
    "",
    "nan",
    "inf",
    "-1",
    "1e15",
    "0x10",
    "9" * 16,
    f"{'9' * 16}:{'9' * 16}",
    f"{'9' * 16}:x",
    f"{'9' * 16}:1",
    "9" * 400,
    "12:34:56",
    "99999999:5",
    "20000:x",
    "\x00\xff",
    "99999",
]


@pytest.mark.parametrize("value", [*CORRUPT, ["a"], {"a": "b"}, {"member": 1.0}, {"m:x": float("inf")}])
async def test_a_value_that_is_not_ours_is_a_fresh_one(
    limiter: RedisLimiter, tenant: Make, server: RedisServer, value: object
) -> None:
    acme = tenant(Quota(1, 2, 60, 20, 2, 20))
    with server.client() as client:
        for kind in ("requests", "characters", "in_flight", "daily"):
            key = f"conch:{{acme}}:{kind}"
            match value:
                case str():
                    client.set(key, value)
                case list():
                    client.rpush(key, *value)
                case {"a": _}:
                    client.hset(key, mapping=value)
                case dict():
                    client.zadd(key, value)
        verdict = await spend(limiter, acme, 10)
    if value == f"{'9' * 16}:1":
        # More than can be owed: as much as can be.
        assert left(verdict)["requests"] == 0
    else:
        assert left(verdict) == {"requests": 1, "characters": 10, "in_flight": 1, "daily": 10}


async def test_a_clock_that_went_back_over_midnight_forgets_nothing(
    limiter: RedisLimiter, tenant: Make, server: RedisServer
) -> None:
    acme = tenant(Quota(characters_per_day=10))
    await spend(limiter, acme, 10)
    with server.client() as client:
        day, spent = client.get("conch:{acme}:daily").split(":")
        client.set("conch:{acme}:daily", f"{int(day) + 1}:{spent}", px=1000)
    assert isinstance((await spend(limiter, acme, 1)).refusal, QuotaExhausted)
    with server.client() as client:
        client.set("conch:{acme}:daily", f"{int(day) - 1}:{spent}", px=1000)
    limiter._account(acme, "sentiment").forget(0)
    assert (await spend(limiter, acme, 1)).refusal is None


async def test_the_value_keeps_every_digit(limiter: RedisLimiter, tenant: Make, server: RedisServer) -> None:
    await spend(limiter, tenant(Quota(3, 9, in_flight=3)))
    with server.client() as client:
        seconds, micros = client.time()
        paid_at, written_at = client.get("conch:{acme}:requests").split(":")
        assert len(paid_at) == len(written_at) == 16
        assert int(paid_at) - int(written_at) == 333_334
        assert 0 <= seconds * 1_000_000 + micros - int(written_at) < 5_000_000
        ((member, score),) = client.zrange("conch:{acme}:in_flight", 0, -1, withscores=True)
        assert member.endswith(":7000000")
        assert int(score) == int(written_at) + 7_000_000


async def test_a_refusal_from_memory_knows_its_own_cost_and_asks_again_in_time(
    limiter: RedisLimiter, tenant: Make, server: RedisServer
) -> None:
    acme = tenant(Quota(characters_per_minute=600, characters_burst=100))
    await spend(limiter, acme, 100)
    refused = await spend(limiter, acme, 50)
    assert (limiter.remembered, refused.refusal.retry_after if refused.refusal else 0) == (0, 5)
    again = await spend(limiter, acme, 50)
    assert limiter.remembered == 1
    assert str(again.refusal) == str(refused.refusal)
    assert again.refusal is not None
    assert again.refusal.retry_after == 5
    await asyncio.sleep(0.25)
    assert (await spend(limiter, acme, 2)).refusal is None
    assert limiter.remembered == 1


async def test_a_slot_is_never_refused_from_memory(limiter: RedisLimiter, tenant: Make, server: RedisServer) -> None:
    acme = tenant(Quota(100, 100, in_flight=1))
    async with RedisLimiter(server.url, budget=5.0) as other:
        verdict = await spend(other, acme)
        assert (await spend(limiter, acme)).refusal is not None
        other.settle(verdict, executed=True)
        await until_settled(other)
        assert (await spend(limiter, acme)).refusal is None


async def test_memory_is_dropped_on_refund_and_on_reload(limiter: RedisLimiter, tenant: Make) -> None:
    acme = tenant(Quota(SLOW, 1))
    first = await spend(limiter, acme)
    assert (await spend(limiter, acme)).refusal is not None
    limiter.settle(first, executed=False)
    assert (await spend(limiter, acme, 0, "other")).refusal is None
    assert (await spend(limiter, acme)).refusal is not None
    reloaded = tenant(Quota(SLOW, 3))
    assert (await spend(limiter, reloaded)).refusal is None
    assert limiter.remembered == 0


async def test_a_tenant_that_offers_half_again_its_rate_still_gets_its_rate(limiter: RedisLimiter, tenant: Make) -> None:
    """Six at a time, so that some are refused from memory; the burst makes up for a machine that is late."""
    rate, burst = 20, 20
    acme = tenant(Quota(rate, burst))
    loop = asyncio.get_running_loop()
    began = loop.time()
    admitted = 0
    for clump in range(20):
        await asyncio.sleep(began + clump * 6 / (1.5 * rate) - loop.time())
        elapsed = loop.time() - began
        admitted += sum([(await spend(limiter, acme)).refusal is None for _ in range(6)])
    assert limiter.remembered > 0
    assert 0.95 * (rate * elapsed + burst) <= admitted <= rate * (loop.time() - began) + burst


async def test_no_name_breaks_out_of_its_tenants_slot(limiter: RedisLimiter, tenant: Make, server: RedisServer) -> None:
    await spend(limiter, tenant(Quota(in_flight=1), name="a", **{"}x{": Quota(in_flight=1)}), 0, "}x{")
    with server.client() as client:
        keys = set(client.keys("conch:*a*")) - {"conch:{_gateways}"}
    assert sorted(keys) == ["conch:{a}:in_flight", "conch:{a}:}x{:in_flight"]
