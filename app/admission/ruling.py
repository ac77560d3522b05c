"""From the numbers of a decision to what the caller is told."""

from collections.abc import Sequence
from typing import NamedTuple

from app.admission.limiter import Policy, Verdict
from app.admission.terms import DAY_US, Limit, Terms
from app.errors import OverLimit, QuotaExhausted, RateLimited, TooManyInFlight

_KINDS: dict[Policy, type[OverLimit]] = {
    "requests": RateLimited,
    "characters": RateLimited,
    "in_flight": TooManyInFlight,
    "daily": QuotaExhausted,
}


class Ruling(NamedTuple):
    """`violated` has a bit per limit, those in shadow mode included; `values` hold after what was spent, if anything was."""

    admitted: bool
    violated: int
    now: int
    values: Sequence[int]


def verdict(
    terms: Terms,
    ruling: Ruling,
    characters: int,
    *,
    degraded: bool = False,
    remembered: bool = False,
    receipt: object = None,
) -> Verdict:
    limits, now, values = terms.limits, ruling.now, ruling.values
    headers = ((b"ratelimit-policy", terms.policies), (b"ratelimit", _left(terms, values, now))) if terms.policies else ()
    if not ruling.violated:
        return Verdict(None, headers, degraded, receipt=receipt)
    broken = [pair for i, pair in enumerate(zip(limits, values, strict=True)) if ruling.violated >> i & 1]
    shadowed = tuple(limit.name for limit, _ in broken if not limit.enforced)
    if ruling.admitted:
        return Verdict(None, headers, degraded, shadowed=shadowed, receipt=receipt)
    waits = [(_wait(limit, value, characters, now, terms.lasting), limit) for limit, value in broken if limit.enforced]
    return Verdict(_refusal(*max(waits, key=lambda wait: wait[0])), headers, degraded, remembered, shadowed)


def _left(terms: Terms, values: Sequence[int], now: int) -> bytes:
    """The value of `RateLimit`: what is left of each quota, and the seconds until there is more."""
    members = []
    for label, limit, value in zip(terms.labels, terms.limits, values, strict=True):
        if not label:
            continue
        policy, quota, reset = limit.policy, limit.quota, 0
        if policy == "in_flight" or policy == "daily":
            remaining = quota - value if value < quota else 0
            if remaining < quota:
                reset = 1 if policy == "in_flight" else _seconds(DAY_US - now % DAY_US)
        else:
            room, scale = limit.capacity - value, limit.scale
            # Neither a rounded capacity nor a rounded quotient may show a unit too many or too few.
            remaining = int(room / scale + 1e-6)
            if remaining > quota:
                remaining = quota
            if value:
                reset = _seconds((remaining + 1) * scale - room)
        members.append(f"{label};r={remaining};t={reset}")
    return ", ".join(members).encode()


def _wait(limit: Limit, value: int, characters: int, now: int, lasting: float) -> float:
    """Microseconds after which this limit would let the same request pass, if nothing else competes."""
    match limit.policy:
        case "daily":
            return DAY_US - now % DAY_US
        # Nobody knows when a running request ends, and its lease is only the latest moment: a guess, from how long they last.
        case "in_flight":
            return lasting / limit.capacity
        case _:
            return value + limit.cost(characters) - limit.capacity


def _refusal(wait: float, limit: Limit) -> OverLimit:
    seconds = _seconds(wait)
    return _KINDS[limit.policy](f"The limit of {limit.promise} is reached.", retry_after=seconds)


def _seconds(us: float) -> int:
    return max(1, int(-(-us // 1_000_000)))
