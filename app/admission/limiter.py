"""The contract of every limiter."""

from collections.abc import Sequence
from typing import Literal, NamedTuple, Protocol

from app.errors import OverLimit
from app.tenancy.tenant import Tenant

Policy = Literal["requests", "characters", "in_flight", "daily"]


class Verdict(NamedTuple):
    """What a limiter decided. Hand it back by `settle` once the request is over."""

    refusal: OverLimit | None
    """Ready to be raised: its kind says which policy was violated, its `retry_after` is exact when nothing else competes."""
    headers: Sequence[tuple[bytes, bytes]] = ()
    """`RateLimit-Policy` and `RateLimit`."""
    degraded: bool = False
    """Decided without Redis."""
    remembered: bool = False
    """A refusal that Redis was not asked for again."""
    shadowed: tuple[str, ...] = ()
    """Names of limits in shadow mode that would have refused the request; for metrics only."""
    receipt: object = None
    """The limiter's own note of what was taken (leases, refundable amounts); nobody else looks inside."""


class Limiter(Protocol):
    async def spend(self, tenant: Tenant, route: str, characters: int, lifetime: float) -> Verdict:
        """Take one request of `characters` from all of the tenant's policies, or from none of them.

        `lifetime` is how long the request can last, in seconds: a slot in flight is a lease of that length plus a margin.
        Raises `InvalidInput` where the cost exceeds a burst, since waiting can't help, and `Unavailable` where Redis can't
        decide and the policy is `closed`. Never raises anything else, and never takes longer than the Redis budget.
        """
        ...

    def recall(self, tenant: Tenant, most: int) -> Verdict | None:
        """The refusal of every request of the tenant on any route, of at most so many characters, where that is certain.

        Costs no call to Redis, and can be asked before the body is read. Nothing is to be given back.
        """
        ...

    def settle(self, verdict: Verdict, *, executed: bool) -> None:
        """Give back the slot in flight, and what was spent where Triton never executed.

        Does not block; leaves with the next write. To be called once; a verdict that refuses has nothing to give back.
        """
        ...
