"""The same decisions as `admit.lua`, in the memory of one process: what holds without Redis, and the tests' oracle."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from app.admission.limiter import Verdict
from app.admission.ruling import Ruling, verdict
from app.admission.terms import DAY_US, Limit, Terms, share, terms_of
from app.tenancy.tenant import Tenant

_SWEEP_EVERY = 4096
_MOST_TERMS = 20_000


def wall_clock_us() -> int:
    return time.time_ns() // 1000


@dataclass(frozen=True, slots=True)
class _Receipt:
    terms: Terms
    spent: tuple[tuple[Limit, int], ...]
    lease: int
    length: int
    at: int


class LocalLimiter:
    """Holds each tenant to its limits divided by `replicas`. `clock` counts microseconds since 1970."""

    def __init__(self, *, replicas: int = 1, margin: float = 5.0, clock: Callable[[], int] = wall_clock_us) -> None:
        self.replicas = replicas
        self._margin = margin
        self._clock = clock
        self._ledger = _Ledger()
        self._terms: dict[tuple[str, str], tuple[Terms, Terms]] = {}
        self._decisions = 0
        self._latest = 0

    async def spend(self, tenant: Tenant, route: str, characters: int, lifetime: float) -> Verdict:
        terms, part = self._terms_of(tenant, route)
        terms.refuse_oversize(characters)
        return self.decide(part, characters, lifetime)

    def decide(self, terms: Terms, characters: int, lifetime: float, *, degraded: bool = False) -> Verdict:
        now = self._now()
        self._decisions += 1
        if self._decisions % _SWEEP_EVERY == 0:
            self._ledger.sweep(now)
        lease, length = self._decisions, int((lifetime + self._margin) * 1e6)
        ruling = self._ledger.rule(terms.limits, characters, now, lease, length)
        receipt = None
        if ruling.admitted:
            spent = ((limit, limit.cost(characters)) for i, limit in enumerate(terms.limits) if not ruling.violated >> i & 1)
            receipt = _Receipt(terms, tuple(spent), lease, length, now)
        return verdict(terms, ruling, characters, degraded=degraded, receipt=receipt)

    def recall(self, tenant: Tenant, most: int) -> Verdict | None:
        """To remember would be to decide: that is all that `spend` does."""
        return None

    def settle(self, verdict: Verdict, *, executed: bool) -> None:
        if not isinstance(verdict.receipt, _Receipt):
            return
        receipt, now = verdict.receipt, self._now()
        receipt.terms.lasted(min(max(0, now - receipt.at), receipt.length))
        for limit, cost in receipt.spent:
            if limit.policy == "in_flight":
                self._ledger.release(limit.key, receipt.lease)
            elif not executed:
                self._ledger.refund(limit, cost, receipt.at, now)

    def _now(self) -> int:
        now = self._clock()
        if now < self._latest:
            self._ledger.move(now - self._latest)
        self._latest = now
        return now

    def _terms_of(self, tenant: Tenant, route: str) -> tuple[Terms, Terms]:
        known = self._terms.get((tenant.id, route))
        # After a reload the tenant is another object, maybe with other limits.
        if known is None or known[0].tenant is not tenant:
            if len(self._terms) >= _MOST_TERMS:
                self._terms.clear()
            terms = terms_of(tenant, route)
            known = self._terms[tenant.id, route] = terms, share(terms, self.replicas)
        return known

    def __len__(self) -> int:
        """Values kept in memory."""
        return len(self._ledger)


class _Ledger:
    """When each bucket will be full again, what was spent on which day, and which lease ends when."""

    def __init__(self) -> None:
        self._full_at: dict[str, int] = {}
        self._spent: dict[str, tuple[int, int]] = {}
        self._leases: dict[str, dict[int, int]] = {}

    def __len__(self) -> int:
        return len(self._full_at) + len(self._spent) + len(self._leases)

    def rule(self, limits: Sequence[Limit], characters: int, now: int, lease: int, length: int) -> Ruling:
        values = [self._value(limit, now) for limit in limits]
        costs = [limit.cost(characters) for limit in limits]
        broken = [value + cost > limit.capacity for limit, value, cost in zip(limits, values, costs, strict=True)]
        admitted = not any(limit.enforced for limit, breaks in zip(limits, broken, strict=True) if breaks)
        for i, limit in enumerate(limits):
            if admitted and not broken[i] and costs[i]:
                values[i] += costs[i]
                self._write(limit, values[i], now, lease, length)
        return Ruling(admitted, sum(1 << i for i, breaks in enumerate(broken) if breaks), now, values)

    def release(self, key: str, lease: int) -> None:
        leases = self._leases.get(key, {})
        leases.pop(lease, None)
        if not leases:
            self._leases.pop(key, None)

    def refund(self, limit: Limit, cost: int, at: int, now: int) -> None:
        if limit.flows and limit.key in self._full_at:
            self._full_at[limit.key] = max(now, self._full_at[limit.key] - cost)
        day, spent = self._spent.get(limit.key, (0, 0))
        if day == at // DAY_US:
            self._spent[limit.key] = day, max(0, spent - cost)

    def move(self, by: int) -> None:
        """The clock went back, and nothing has been paid since."""
        self._full_at = {key: at + by for key, at in self._full_at.items()}
        self._leases = {key: {lease: end + by for lease, end in leases.items()} for key, leases in self._leases.items()}

    def sweep(self, now: int) -> None:
        """Drops what says no more than its absence would."""
        self._full_at = {key: at for key, at in self._full_at.items() if at > now}
        self._spent = {key: (day, spent) for key, (day, spent) in self._spent.items() if day >= now // DAY_US}
        for key in list(self._leases):
            self._held(key, now)

    def _value(self, limit: Limit, now: int) -> int:
        if limit.policy == "in_flight":
            return self._held(limit.key, now)
        if limit.policy == "daily":
            day, spent = self._spent.get(limit.key, (0, 0))
            return spent if day - now // DAY_US in {0, 1} else 0
        debt = self._full_at.get(limit.key, 0) - now
        if debt > limit.capacity:  # which was lowered
            debt = limit.capacity
            self._full_at[limit.key] = now + debt
        return max(0, debt)

    def _held(self, key: str, now: int) -> int:
        leases = self._leases.get(key)
        if leases is None:
            return 0
        left = {lease: end for lease, end in leases.items() if end > now}
        if left:
            self._leases[key] = left
        else:
            del self._leases[key]
        return len(left)

    def _write(self, limit: Limit, value: int, now: int, lease: int, length: int) -> None:
        if limit.policy == "in_flight":
            self._leases.setdefault(limit.key, {})[lease] = now + length
        elif limit.policy == "daily":
            self._spent[limit.key] = now // DAY_US, value
        else:
            self._full_at[limit.key] = now + value
