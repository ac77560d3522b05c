"""The refusal that awaits every request of a tenant, known before any of it is read."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from app.admission.limiter import Verdict
from app.admission.local_limiter import LocalLimiter
from app.admission.redis_limiter import RedisLimiter
from app.errors import RateLimited
from app.tenancy.tenant import Quota, Tenant
from tests.admission.redis_server import RedisServer
from tests.admission.told import left

Make = Callable[..., Tenant]
Until = Callable[[Callable[[], object]], Awaitable[None]]
SLOW = 0.001


async def spend(limiter: RedisLimiter, tenant: Tenant, characters: int = 10) -> Verdict:
    return await limiter.spend(tenant, "sentiment", characters, 2.0)


async def exhaust(limiter: RedisLimiter, tenant: Tenant) -> list[Verdict]:
    """The last of them is a refusal."""
    verdicts = [await spend(limiter, tenant)]
    while verdicts[-1].refusal is None:
        verdicts.append(await spend(limiter, tenant))
    return verdicts


async def test_nothing_is_recalled_of_who_was_not_refused(limiter: RedisLimiter, tenant: Make) -> None:
    acme = tenant(Quota(SLOW, 2))
    assert limiter.recall(acme, 10) is None
    await spend(limiter, acme)
    assert limiter.recall(acme, 10) is None


async def test_what_is_recalled_is_what_asking_would_tell(limiter: RedisLimiter, tenant: Make) -> None:
    acme = tenant(Quota(SLOW, 2, 60_000, 500, 9, 1000))
    asked = (await exhaust(limiter, acme))[-1]
    for most in (0, 10, 400):
        recalled = limiter.recall(acme, most)
        assert recalled is not None
        assert recalled.remembered
        assert isinstance(recalled.refusal, RateLimited)
        assert str(recalled.refusal) == str(asked.refusal)
        assert left(recalled).keys() == left(asked).keys()
        assert next(iter(left(recalled).values())) == 0
        limiter.settle(recalled, executed=False)
    assert limiter.recall(acme, 10) is not None


@pytest.mark.parametrize(
    ("quota", "routes", "most"),
    [
        (Quota(SLOW, 1, 60, 100), {}, 101),  # may be a 422
        (Quota(SLOW, 1, 60, 100), {}, 95),  # may have to wait for characters
        (Quota(SLOW, 1, characters_per_day=100), {}, 95),  # may have to wait for tomorrow
        (Quota(SLOW, 1), {"other": Quota(SLOW / 2, 1)}, 10),  # may have to wait for the route
        (Quota(characters_per_minute=60, characters_burst=19), {}, 1),  # may be short enough
        (Quota(in_flight=1), {}, 10),  # may be free again
    ],
)
async def test_what_depends_on_the_request_is_not_recalled(
    limiter: RedisLimiter, tenant: Make, quota: Quota, routes: dict[str, Quota], most: int
) -> None:
    acme = tenant(quota, **routes)
    await exhaust(limiter, acme)
    assert limiter.recall(acme, most) is None


async def test_shadow_limits_by_the_character_do_not_matter(limiter: RedisLimiter, tenant: Make) -> None:
    acme = tenant(Quota(SLOW, 1, 60, 10, shadow=frozenset({"characters"})))
    await exhaust(limiter, acme)
    recalled = limiter.recall(acme, 10**6)
    assert recalled is not None
    assert recalled.shadowed == ()


async def test_it_is_forgotten_on_refund_on_reload_and_when_it_has_come_back(limiter: RedisLimiter, tenant: Make) -> None:
    acme = tenant(Quota(SLOW, 2))
    first, *_ = await exhaust(limiter, acme)
    assert limiter.recall(acme, 10) is not None
    limiter.settle(first, executed=False)
    assert limiter.recall(acme, 10) is None

    await exhaust(limiter, acme)
    assert limiter.recall(tenant(Quota(SLOW, 3)), 10) is None

    quick = tenant(Quota(250, 1), name="quick")
    await exhaust(limiter, quick)
    limiter.recall(quick, 10)
    await asyncio.sleep(0.0045)  # what was told a moment ago holds no longer than it is true
    assert limiter.recall(quick, 10) is None
    assert (await spend(limiter, quick)).refusal is None


async def test_whoever_is_refused_again_and_again_is_told_the_same_for_a_few_milliseconds(
    limiter: RedisLimiter, tenant: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.admission.account._FRESH_US", 200_000)
    acme = tenant(Quota(SLOW, 1))
    await exhaust(limiter, acme)
    before = limiter.remembered
    first, *others = [limiter.recall(acme, most) for most in (10, 10, 7)]
    assert [other is first for other in others] == [True, True]
    assert limiter.remembered == before + 3
    await asyncio.sleep(0.21)
    assert limiter.recall(acme, 10) is not first


async def test_without_redis_nothing_is_recalled(own_server: RedisServer, tenant: Make, until: Until) -> None:
    acme = tenant(Quota(SLOW, 1))
    async with RedisLimiter(own_server.start().url, budget=5.0) as limiter:
        await exhaust(limiter, acme)
        own_server.stop()
        await until(lambda: limiter.mode == "degraded")
        assert limiter.recall(acme, 10) is None


async def test_who_decides_in_memory_has_nothing_to_recall(tenant: Make) -> None:
    limiter, acme = LocalLimiter(), tenant(Quota(SLOW, 1))
    for _ in range(2):
        await limiter.spend(acme, "sentiment", 10, 2.0)
    assert limiter.recall(acme, 10) is None
