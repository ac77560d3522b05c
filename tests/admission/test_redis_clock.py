"""The clock of Redis jumps: a real server's, under a library that tells this one process another time of day."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import pytest

from app.admission.limiter import Verdict
from app.admission.redis_limiter import RedisLimiter
from app.local.watchdog import Watchdog
from app.tenancy.tenant import Quota, Tenant
from tests.admission.redis_server import RedisServer, free_port
from tests.admission.told import left

Make = Callable[..., Tenant]
SLOW = 0.001
"""Requests per second: an hour pays for less than four of them."""


@dataclass(frozen=True, slots=True)
class Clock:
    """`hours` are written as a whole, since the server looks at the file all the time."""

    file: Path

    def jump(self, hours: int) -> None:
        fresh = self.file.with_suffix(".new")
        fresh.write_text(f"{hours * 3600:+d}\n")
        fresh.replace(self.file)

    @property
    def environment(self) -> dict[str, str]:
        spec = find_spec("libfaketime")
        assert spec is not None
        library = next(Path(str(spec.origin)).parent.rglob("libfaketime.so.1"))
        told = {"FAKETIME_TIMESTAMP_FILE": str(self.file), "FAKETIME_NO_CACHE": "1", "DONT_FAKE_MONOTONIC": "1"}
        return {"LD_PRELOAD": str(library), **told, "FAKETIME_DONT_FAKE_MONOTONIC": "1"}


@pytest.fixture(scope="module")
def _skewed(tmp_path_factory: pytest.TempPathFactory, watchdog: Watchdog) -> Iterator[tuple[RedisServer, Clock]]:
    folder = tmp_path_factory.mktemp("skewed")
    clock = Clock(folder / "clock")
    clock.jump(0)
    server = RedisServer(free_port(), folder, watchdog, environment=clock.environment).start()
    yield server, clock
    server.stop()


@pytest.fixture
def skewed(_skewed: tuple[RedisServer, Clock]) -> Iterator[RedisServer]:
    """At the end no key of a limiter may live for ever."""
    server, clock = _skewed
    clock.jump(0)
    with server.client() as client:
        client.flushall()
        yield server
        assert [key for key in client.scan_iter("conch:*") if client.ttl(key) == -1] == []


@pytest.fixture
def clock(_skewed: tuple[RedisServer, Clock]) -> Clock:
    return _skewed[1]


async def spend(limiter: RedisLimiter, tenant: Tenant, lifetime: float = 2.0) -> Verdict:
    verdict = await limiter.spend(tenant, "sentiment", 10, lifetime)
    assert not verdict.degraded
    return verdict


def remaining(verdict: Verdict) -> list[int]:
    return [*left(verdict).values()]


@pytest.mark.parametrize(("hours", "then"), [(-1, [2, 20]), (1, [3, 30])])
async def test_what_was_owed_stays_owed_when_the_clock_goes_back_and_is_paid_when_it_goes_forward(
    skewed: RedisServer, clock: Clock, tenant: Make, hours: int, then: list[int]
) -> None:
    acme = tenant(Quota(SLOW, 4, 600 * SLOW, 40))
    async with RedisLimiter(skewed.url, budget=5.0) as limiter:
        assert remaining(await spend(limiter, acme)) == [3, 30]
        clock.jump(hours)
        assert remaining(await spend(limiter, acme)) == then


async def test_who_is_far_from_its_limits_is_never_refused_and_who_reached_them_gets_one_burst_more_at_most(
    skewed: RedisServer, clock: Clock, tenant: Make
) -> None:
    plenty, scarce = tenant(Quota(1e6, 10**6, 6e9, 10**8, 100), name="plenty"), tenant(Quota(SLOW, 4, in_flight=100))
    admitted = []
    for hours in (0, -1, -3, -2, 0):
        clock.jump(hours)
        async with RedisLimiter(skewed.url, budget=5.0) as limiter:  # one that remembers no refusal
            for _ in range(20):
                verdict = await spend(limiter, plenty)
                assert verdict.refusal is None
                limiter.settle(verdict, executed=True)
            admitted.append(sum([(await spend(limiter, scarce)).refusal is None for _ in range(6)]))
    assert admitted == [4, 0, 0, 3, 4], "an hour pays for three requests, two hours for all"


async def test_what_is_given_back_after_the_clock_went_back_is_all_that_was_taken(
    skewed: RedisServer, clock: Clock, tenant: Make
) -> None:
    acme = tenant(Quota(SLOW, 4, 600 * SLOW, 40, 4))
    async with RedisLimiter(skewed.url, budget=5.0) as limiter:
        kept, returned = await spend(limiter, acme), await spend(limiter, acme)
        clock.jump(-1)
        limiter.settle(returned, executed=False)
        limiter.settle(kept, executed=True)
        assert remaining(await spend(limiter, acme)) == [2, 20, 3]


@pytest.mark.parametrize("hours", [-1, 1])
async def test_a_slot_whose_holder_crashed_is_free_after_its_lease_wherever_the_clock_went(
    skewed: RedisServer, clock: Clock, tenant: Make, hours: int
) -> None:
    acme = tenant(Quota(in_flight=1))
    async with RedisLimiter(skewed.url, margin=0.2, budget=5.0) as limiter:
        await spend(limiter, acme, lifetime=0.1)
        clock.jump(hours)
        refused = (await spend(limiter, acme, lifetime=0.1)).refusal is not None
        assert refused is (hours < 0)
        with skewed.client() as client:
            ends = max(score for _, score in client.zrange("conch:{acme}:in_flight", 0, -1, withscores=True))
            seconds, micros = client.time()
            assert ends <= seconds * 1e6 + micros + 300_000
