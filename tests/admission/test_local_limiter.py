import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.admission.limiter import Verdict
from app.admission.local_limiter import LocalLimiter
from app.errors import InvalidInput, QuotaExhausted, RateLimited, TooManyInFlight
from app.tenancy.tenant import Quota, Tenant
from tests.admission.told import left

NOON = 20_000 * 86_400_000_000 + 43_200_000_000


class Clock:
    def __init__(self, now: int = NOON) -> None:
        self.now = now

    def __call__(self) -> int:
        return self.now

    def pass_(self, seconds: float) -> None:
        self.now += int(seconds * 1e6)


def tenant_of(quota: Quota, **routes: Quota) -> Tenant:
    return Tenant("acme", "standard", ("*",), quota, routes)


async def spend(limiter: LocalLimiter, tenant: Tenant, characters: int = 0, route: str = "sentiment") -> Verdict:
    return await limiter.spend(tenant, route, characters, 2.0)


STEPS = st.lists(st.tuples(st.integers(0, 400_000), st.integers(1, 30)), min_size=1, max_size=60)


@settings(deadline=None)
@given(steps=STEPS, rate=st.sampled_from([0.5, 3, 20, 333]), burst=st.integers(1, 40), by_character=st.booleans())
async def test_any_window_admits_no_more_than_rate_times_window_plus_burst(
    steps: list[tuple[int, int]], rate: float, burst: int, by_character: bool
) -> None:
    clock = Clock()
    limiter = LocalLimiter(clock=clock)
    by_request = Quota(requests_per_second=rate, burst=burst)
    quota = Quota(characters_per_minute=60 * rate, characters_burst=burst) if by_character else by_request
    tenant = tenant_of(quota)
    admitted: list[tuple[int, int]] = []
    for wait, characters in steps:
        clock.now += wait
        cost = min(characters, burst) if by_character else 1
        if (await spend(limiter, tenant, cost)).refusal is None:
            admitted.append((clock.now, cost))
    for i, (start, _) in enumerate(admitted):
        total = 0
        for end, cost in admitted[i:]:
            total += cost
            assert total <= rate * (end - start) / 1e6 + burst + 1e-3


@settings(deadline=None)
@given(steps=STEPS, rate=st.sampled_from([0.5, 3, 20]))
async def test_waiting_as_long_as_told_succeeds_when_nothing_else_competes(steps: list[tuple[int, int]], rate: float) -> None:
    clock = Clock()
    limiter = LocalLimiter(clock=clock)
    tenant = tenant_of(Quota(rate, 5, 60 * 30 * rate, 60, None, 500))
    for wait, characters in steps:
        clock.now += wait
        refusal = (await spend(limiter, tenant, characters)).refusal
        if refusal is not None:
            assert isinstance(refusal.retry_after, int)
            assert refusal.retry_after >= 1
            clock.pass_(refusal.retry_after)
            assert (await spend(limiter, tenant, characters)).refusal is None


@settings(deadline=None)
@given(pace=st.floats(0.001, 1e12), burst=st.integers(1, 10**9))
async def test_an_untouched_limit_has_all_of_its_quota_left_and_can_pay_it_at_once(pace: float, burst: int) -> None:
    limiter = LocalLimiter(clock=Clock())
    tenant = tenant_of(Quota(min(pace, 1e6), burst, pace, burst))
    untouched, spent = await spend(limiter, tenant, 0), await spend(limiter, tenant, burst)
    assert [*left(untouched).values()] == [burst - 1, burst]
    if burst > 1:
        assert [*left(spent).values()] == [burst - 2, 0]


@pytest.mark.parametrize(
    ("quota", "kind", "retry_after", "words"),
    [
        (Quota(requests_per_second=0.5, burst=1), RateLimited, 2, "0.5 requests per second with bursts of 1"),
        (Quota(characters_per_minute=60, characters_burst=10), RateLimited, 10, "60 characters per minute with bursts of 10"),
        (Quota(in_flight=1), TooManyInFlight, 1, "1 requests in flight"),
        (Quota(characters_per_day=10), QuotaExhausted, 43_200, "10 characters per day (UTC)"),
    ],
)
async def test_a_refusal_says_which_limit_and_how_long(
    quota: Quota, kind: type[Exception], retry_after: int, words: str
) -> None:
    limiter, tenant = LocalLimiter(clock=Clock()), tenant_of(quota)
    assert (await spend(limiter, tenant, 10)).refusal is None
    verdict = await spend(limiter, tenant, 10)
    assert type(verdict.refusal) is kind
    assert verdict.refusal.retry_after == retry_after
    assert words in verdict.refusal.detail
    assert [*left(verdict).values()] == [0]


@pytest.mark.parametrize(
    ("slots", "seconds", "retry_after"), [(1, 9.0, 9), (1, 8.2, 9), (4, 9.0, 3), (16, 9.0, 1), (1, 0.01, 1)]
)
async def test_a_slot_is_promised_as_soon_as_one_of_those_held_is_free_on_average(
    slots: int, seconds: float, retry_after: int
) -> None:
    clock = Clock()
    limiter, tenant = LocalLimiter(clock=clock), tenant_of(Quota(in_flight=slots))
    verdict = await limiter.spend(tenant, "sentiment", 0, 60.0)
    clock.pass_(seconds)
    limiter.settle(verdict, executed=True)
    for _ in range(slots):
        await spend(limiter, tenant)
    refusal = (await spend(limiter, tenant)).refusal
    assert isinstance(refusal, TooManyInFlight)
    assert refusal.retry_after == retry_after


async def test_the_longest_wait_is_the_one_told() -> None:
    limiter = LocalLimiter(clock=Clock())
    tenant = tenant_of(Quota(requests_per_second=1, burst=1, characters_per_day=10, in_flight=1))
    await spend(limiter, tenant, 10)
    refusal = (await spend(limiter, tenant, 10)).refusal
    assert isinstance(refusal, QuotaExhausted)
    assert refusal.retry_after == 43_200


async def test_a_limit_of_a_route_stands_beside_the_tenants_own() -> None:
    limiter = LocalLimiter(clock=Clock())
    tenant = tenant_of(Quota(requests_per_second=1, burst=3), pii=Quota(requests_per_second=1, burst=1))
    verdict = await spend(limiter, tenant, route="pii")
    assert left(verdict) == {"requests": 2, "pii-requests": 0}
    assert "requests to pii per second" in str((await spend(limiter, tenant, route="pii")).refusal)
    assert [(await spend(limiter, tenant)).refusal is None for _ in range(3)] == [True, True, False]


async def test_what_waiting_cannot_help_is_a_422_and_spends_nothing() -> None:
    limiter = LocalLimiter(clock=Clock())
    tenant = tenant_of(Quota(characters_per_minute=60, characters_burst=100, characters_per_day=50))
    with pytest.raises(InvalidInput, match=r"characters per day .* at most 50 in one request. Waiting can't help"):
        await spend(limiter, tenant, 51)
    assert len(limiter) == 0
    assert (await spend(limiter, tenant, 50)).refusal is None


async def test_what_was_not_executed_is_given_back_and_a_slot_in_any_case() -> None:
    limiter = LocalLimiter(clock=Clock())
    tenant = tenant_of(Quota(1, 1, 60, 10, 1, 10))
    for _ in range(3):
        verdict = await spend(limiter, tenant, 10)
        assert verdict.refusal is None
        limiter.settle(verdict, executed=False)
    executed = await spend(limiter, tenant, 10)
    limiter.settle(executed, executed=True)
    verdict = await spend(limiter, tenant, 10)
    assert [*left(verdict).values()] == [0, 0, 1, 0]


async def test_a_slot_that_nobody_gives_back_is_free_again_after_its_lease() -> None:
    clock = Clock()
    limiter, tenant = LocalLimiter(clock=clock, margin=5.0), tenant_of(Quota(in_flight=1))
    await spend(limiter, tenant)
    clock.pass_(6.9)
    assert (await spend(limiter, tenant)).refusal is not None
    clock.pass_(0.2)
    assert (await spend(limiter, tenant)).refusal is None


@pytest.mark.parametrize(("jump", "more"), [(-3600, 0), (3600, 4)])
@pytest.mark.parametrize(("quota", "drain"), [(Quota(requests_per_second=2, burst=4), 2.0), (Quota(in_flight=4), 7.0)])
async def test_a_clock_that_jumps_costs_at_most_one_burst_and_locks_nobody_out(
    jump: int, more: int, quota: Quota, drain: float
) -> None:
    clock = Clock()
    limiter, tenant = LocalLimiter(clock=clock), tenant_of(quota)
    for _ in range(4):
        await spend(limiter, tenant)
    clock.pass_(jump)
    admitted = [(await spend(limiter, tenant)).refusal is None for _ in range(8)]
    assert sum(admitted) == more
    clock.pass_(drain + 0.001)
    assert (await spend(limiter, tenant)).refusal is None


async def test_a_clock_that_goes_back_refuses_nobody_who_is_far_from_its_limits() -> None:
    clock = Clock()
    limiter, tenant = LocalLimiter(clock=clock), tenant_of(Quota(2, 4, 600, 40))
    first = await spend(limiter, tenant, 10)
    clock.pass_(-3600)
    assert [*left(await spend(limiter, tenant, 10)).values()] == [2, 20]
    clock.pass_(-3600)
    limiter.settle(first, executed=False)
    assert [*left(await spend(limiter, tenant, 10)).values()] == [2, 20]


async def test_a_clock_that_goes_back_over_midnight_forgets_nothing_and_locks_nobody_out() -> None:
    clock = Clock(20_001 * 86_400_000_000)
    limiter, tenant = LocalLimiter(clock=clock), tenant_of(Quota(characters_per_day=10))
    await spend(limiter, tenant, 10)
    clock.pass_(-1)
    assert (await spend(limiter, tenant, 1)).refusal is not None
    clock.pass_(-2 * 86_400)
    assert (await spend(limiter, tenant, 10)).refusal is None


async def test_a_shadow_limit_is_reported_and_refuses_nothing() -> None:
    limiter = LocalLimiter(clock=Clock())
    tenant = tenant_of(Quota(1, 1, characters_per_day=10, shadow=frozenset({"requests", "daily"})))
    verdicts = [await spend(limiter, tenant, characters) for characters in (1, 1, 11)]
    assert [verdict.refusal for verdict in verdicts] == [None, None, None]
    assert [verdict.shadowed for verdict in verdicts] == [(), ("requests",), ("requests", "daily")]
    assert [left(verdict) for verdict in verdicts] == [{}, {}, {}]


@pytest.mark.parametrize("replicas", [1, 2, 3, 7])
async def test_replicas_together_admit_no_more_than_one(replicas: int) -> None:
    clock = Clock()
    limiters = [LocalLimiter(replicas=replicas, clock=clock) for _ in range(replicas)]
    tenant = tenant_of(Quota(requests_per_second=100, burst=100))
    admitted = 0
    for _ in range(200):
        for limiter in limiters * 8:
            admitted += (await spend(limiter, tenant)).refusal is None
        clock.pass_(0.01)
    assert 0.9 * 300 <= admitted <= 100 * 2 + 100


async def test_a_request_above_a_replicas_share_spends_all_of_it_instead_of_never_passing() -> None:
    clock = Clock()
    limiter = LocalLimiter(replicas=4, clock=clock)
    tenant = tenant_of(Quota(characters_per_minute=6000, characters_burst=400))
    assert (await spend(limiter, tenant, 400)).refusal is None
    refusal = (await spend(limiter, tenant, 400)).refusal
    assert refusal is not None
    assert refusal.retry_after == 4
    clock.pass_(4)
    assert (await spend(limiter, tenant, 400)).refusal is None


async def test_idle_tenants_leave_no_memory() -> None:
    clock = Clock()
    limiter = LocalLimiter(clock=clock)
    for i in range(20_000):
        await limiter.spend(Tenant(f"t{i}", "", (), Quota(10, 1, in_flight=1)), "x", 0, 0.0)
        clock.pass_(0.01)
    assert len(limiter) < 12_000
