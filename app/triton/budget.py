"""How many second tries there may be."""

from collections.abc import Callable
from time import monotonic


class RetryBudget:
    """A share of recent calls, and a few in quiet times: in any `t` seconds at most `ceiling + share * calls + floor_rate * t`.

    Where every call fails, retries would double the load exactly when there is too much of it; so they run dry.
    """

    def __init__(
        self,
        share: float = 0.1,
        *,
        ceiling: float = 100,
        floor: float = 10,
        floor_rate: float = 1,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._share = share
        self._ceiling = ceiling
        self._floor = floor
        self._floor_rate = floor_rate
        self._clock = clock
        self._tokens = floor
        self._refilled = clock()

    def deposit(self) -> None:
        """For each call, the first of a request."""
        self._tokens = min(self._ceiling, self._tokens + self._share)

    def spend(self) -> bool:
        """Whether there may be one more second try; it is taken then."""
        now = self._clock()
        if self._tokens < self._floor:
            self._tokens = min(self._floor, self._tokens + (now - self._refilled) * self._floor_rate)
        self._refilled = now
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True
