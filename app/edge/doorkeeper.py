"""Who is turned away, and how often that is said in full: guessing is slow, and can't fill the log."""

from collections import OrderedDict
from math import ceil
from time import monotonic

from starlette.types import Scope

from app.edge.origin import Origin
from app.errors import RateLimited, Refusal, Unauthenticated
from app.telemetry.metrics import Metrics

_BURST_SECONDS = 5.0
_MOST_ADDRESSES = 10_000


class Stranger(Exception):
    """Whoever can't be let in. `reason` is a metric's label; `is_invalid` says that there was a credential at all."""

    def __init__(self, reason: str, detail: str, *, is_invalid: bool = False) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail
        self.is_invalid = is_invalid


class Doorkeeper:
    """Asked only after a credential was found wanting: a valid one is never refused for what its neighbours do.

    Each address has so many failures per second, and five times as many at once.
    """

    def __init__(self, metrics: Metrics, origin: Origin, per_second: float) -> None:
        self._metrics = metrics
        self._origin = origin
        self._interval = 1 / per_second
        self._window = max(_BURST_SECONDS, self._interval) + 1e-6
        self._full_at: OrderedDict[str, float] = OrderedDict()

    def turn_away(self, stranger: Stranger, scope: Scope) -> Refusal:
        wait = self._wait(self._origin.of(scope))
        if wait > 0:
            self._metrics.auth_failures.labels("limited").inc()
            return RateLimited("too many requests from this address could not be authenticated", retry_after=ceil(wait))
        self._metrics.auth_failures.labels(stranger.reason).inc()
        error = ', error="invalid_token"' if stranger.is_invalid else ""
        return Unauthenticated(stranger.detail, headers=(("www-authenticate", f'Bearer realm="conch"{error}'),))

    def _wait(self, address: str) -> float:
        """Seconds until this address may fail again; 0 where it may now, which is then spent."""
        now = monotonic()
        full_at = max(now, self._full_at.pop(address, now))
        wait = full_at + self._interval - self._window - now
        self._full_at[address] = full_at if wait > 0 else full_at + self._interval
        if len(self._full_at) > _MOST_ADDRESSES:
            self._full_at.popitem(last=False)
        return max(0.0, wait)
