"""A tenant's limits on one route, worked out once so that a decision is plain arithmetic on integers.

Every kind of limit is a value that may not exceed a capacity. For `requests` and `characters` (GCRA) the value is the debt: the
microseconds until an untouched bucket would be full again. For `in_flight` it is the leases held, for `daily` the characters
spent.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from math import ceil

from app.admission.headers import label, policy_member
from app.admission.limiter import Policy
from app.errors import InvalidInput
from app.tenancy.tenant import OnRedisLoss, Quota, Tenant

DAY_US = 86_400_000_000
_WEIGHT = 0.1
"""Of the latest request in the moving average of how long they last."""


@dataclass(frozen=True, slots=True)
class Limit:
    """`scale` turns one request or one character into the unit of `capacity`."""

    policy: Policy
    name: str
    key: str
    quota: int
    scale: float
    capacity: int
    window: int
    promise: str
    """The limit in words, for the details of refusals."""
    enforced: bool = True
    on_redis_loss: OnRedisLoss = "local"
    divided: bool = False
    """A replica's share: a cost above it spends all of it, since the whole limit could pay."""

    @property
    def flows(self) -> bool:
        """Whether what was spent comes back little by little."""
        return self.policy in {"requests", "characters"}

    @property
    def by_character(self) -> bool:
        return self.policy in {"characters", "daily"}

    def cost(self, characters: int) -> int:
        cost = ceil(characters * self.scale) if self.by_character else int(self.scale)
        return min(cost, self.capacity) if self.divided else cost


@dataclass(slots=True)
class Terms:
    """All limits of a tenant on a route: those of the tenant first, then those of the route."""

    tenant: Tenant
    route: str
    limits: tuple[Limit, ...]
    most: int | None = field(init=False)
    """The characters above which no request can ever pass."""
    lasting: float = field(default=0.0, init=False)
    """Microseconds, a moving average of the requests that are over."""
    policies: bytes = field(init=False)
    """The value of `RateLimit-Policy`: of the limits that are enforced, as those in shadow mode are nobody's business."""
    labels: tuple[str, ...] = field(init=False)
    """The name of each limit in `RateLimit`; empty where it is not told."""

    def __post_init__(self) -> None:
        self.most = min((limit.quota for limit in self._by_character()), default=None)
        told = [limit for limit in self.limits if limit.enforced]
        self.policies = ", ".join(policy_member(limit.name, limit.policy, limit.quota, limit.window) for limit in told).encode()
        self.labels = tuple(label(limit.name) if limit.enforced else "" for limit in self.limits)

    def refuse_oversize(self, characters: int) -> None:
        """Raises `InvalidInput` where waiting can't help."""
        if self.most is None or characters <= self.most:
            return
        limit = min(self._by_character(), key=lambda limit: limit.quota)
        raise InvalidInput(
            f"The request has {characters} characters, and the limit of {limit.promise} admits at most {limit.quota} in one "
            "request. Waiting can't help: send fewer characters at a time."
        )

    def lasted(self, microseconds: int) -> None:
        self.lasting += (microseconds - self.lasting) * (_WEIGHT if self.lasting else 1.0)

    def _by_character(self) -> Iterator[Limit]:
        return (limit for limit in self.limits if limit.by_character and limit.enforced)


def terms_of(tenant: Tenant, route: str) -> Terms:
    limits = list(_limits(tenant.quota, f"conch:{{{tenant.id}}}:", "", ""))
    if route in tenant.routes:
        limits += _limits(tenant.routes[route], f"conch:{{{tenant.id}}}:{route}:", f"{route}-", f" to {route}")
    return Terms(tenant, route, tuple(limits))


def share(terms: Terms, replicas: int) -> Terms:
    """What is left of the terms while Redis can't decide: of the `local` limits, this replica's part."""
    local = (limit for limit in terms.limits if limit.on_redis_loss == "local")
    return Terms(terms.tenant, terms.route, tuple(_part(limit, replicas) for limit in local))


def burst_of(quota: Quota) -> int:
    """Where no burst is given: the requests of one second."""
    return quota.burst or max(1, ceil(quota.requests_per_second or 0))


def characters_burst_of(quota: Quota) -> int:
    """Where no burst is given: the characters of one minute."""
    return quota.characters_burst or max(1, ceil(quota.characters_per_minute or 0))


def _limits(quota: Quota, key: str, name: str, where: str) -> Iterator[Limit]:
    def limit(policy: Policy, amount: int, scale: float, window: int, promise: str) -> Limit:
        capacity = ceil(amount * scale)
        enforced = policy not in quota.shadow
        return Limit(
            policy, name + policy, key + policy, amount, scale, capacity, window, promise, enforced, quota.on_redis_loss
        )

    if quota.requests_per_second is not None:
        burst = burst_of(quota)
        # Whole microseconds, rounded up: a burst of requests fits exactly, and the rate is never exceeded.
        scale = ceil(1e6 / quota.requests_per_second)
        promise = f"{quota.requests_per_second:g} requests{where} per second with bursts of {burst}"
        yield limit("requests", burst, scale, ceil(burst * scale / 1e6), promise)
    if quota.characters_per_minute is not None:
        burst = characters_burst_of(quota)
        pace = 60e6 / quota.characters_per_minute
        promise = f"{quota.characters_per_minute:.15g} characters{where} per minute with bursts of {burst}"
        yield limit("characters", burst, pace, max(1, ceil(burst * pace / 1e6)), promise)
    if quota.in_flight is not None:
        yield limit("in_flight", quota.in_flight, 1, 0, f"{quota.in_flight} requests{where} in flight")
    if quota.characters_per_day is not None:
        promise = f"{quota.characters_per_day} characters{where} per day (UTC)"
        yield limit("daily", quota.characters_per_day, 1, 86_400, promise)


def _part(limit: Limit, replicas: int) -> Limit:
    quota = max(1, limit.quota // replicas)
    scale = limit.scale * replicas if limit.flows else limit.scale
    return replace(limit, quota=quota, scale=scale, capacity=ceil(quota * scale), divided=replicas > 1)
