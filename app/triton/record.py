"""How one endpoint has done by one ensemble."""

from dataclasses import dataclass, field

SUSPICIOUS = 5
"""Failures in a row."""
_PATIENCE, _SILENCE = 1.0, 10.0
_LONGEST_PAUSE = 30.0
_LAPSE = 60.0
_RISE, _FALL = 0.1, 0.001


@dataclass(slots=True)
class Record:
    """`failures` counts those since the last good answer. A call that was given up tells nothing unless it was waited for
    longer than answers take, so that neither impatient callers nor short deadlines make an endpoint look ill.

    Times are readings of the monotonic clock. `reason` is empty while the ensemble may be asked here.
    """

    failures: int = 0
    slow: float = 0.0
    """Seconds that few answers take longer than: about the 99th percentile, followed cheaply."""
    reason: str = ""
    probe_at: float = 0.0
    pause: float = 0.0
    _waiting: dict[int, float] = field(default_factory=dict)
    """The calls in flight, oldest first, and when each began."""
    _begun: int = 0
    _answered: float = 0.0
    _silent: tuple[float, float] | None = None
    """From when until when calls were waited for in vain, with no good answer since."""
    _reinstated: float = -_LAPSE

    @property
    def patience(self) -> float:
        """How long a call must be waited for until its silence counts."""
        return max(_PATIENCE, self.slow)

    @property
    def tolerance(self) -> float:
        """How long calls may be waited for in vain until the ensemble counts as hung."""
        return max(_SILENCE, 3 * self.slow)

    @property
    def in_flight(self) -> int:
        return len(self._waiting)

    def begin(self, now: float) -> int:
        self._begun += 1
        self._waiting[self._begun] = now
        return self._begun

    def succeed(self, call: int, now: float) -> None:
        took = now - self._waiting.pop(call)
        self.failures = 0
        self._answered = now
        self._silent = None
        self.slow += (took - self.slow) * (_RISE if took > self.slow else _FALL) if self.slow else took

    def fail(self, call: int) -> None:
        del self._waiting[call]
        self.failures += 1

    def shed(self, call: int, now: float) -> None:
        """The queue was full: no failure, but if nothing else is ever heard, no life either."""
        self._wait_in_vain(self._waiting.pop(call), now)

    def give_up(self, call: int, now: float, *, late: bool) -> None:
        """Nobody waits any more: the deadline passed (`late`), or the caller left."""
        began = self._waiting.pop(call)
        if now - began >= self.patience:
            self.failures += late
            self._wait_in_vain(began, now)

    def close(self, call: int) -> None:
        """The call told nothing."""
        del self._waiting[call]

    def hung(self, now: float) -> bool:
        """Whether there was traffic and no good answer for too long."""
        oldest = next(iter(self._waiting.values()), now)
        if now - max(oldest, self._answered) >= self.patience:
            self._wait_in_vain(oldest, now)
        return self._silent is not None and self._silent[1] - self._silent[0] >= self.tolerance

    def eject(self, reason: str, first_pause: float, now: float) -> None:
        """Until a probe succeeds. One that falls ill again soon is looked at more and more seldom."""
        relapsed = self.reason or now - self._reinstated < _LAPSE
        self.reason = reason
        self.pause = min(_LONGEST_PAUSE, max(first_pause, 2 * self.pause)) if relapsed else first_pause
        self.probe_at = now + self.pause

    def renew(self, now: float) -> None:
        """What stands there is another process than before: let it show at once what it can do."""
        self.failures, self.pause, self.probe_at, self._silent = 0, 0.0, now, None

    def reinstate(self, now: float) -> None:
        self.reason, self.failures, self._silent, self._reinstated = "", 0, None, now

    def _wait_in_vain(self, began: float, until: float) -> None:
        began = max(began, self._answered)
        if self._silent is None or began - self._silent[1] > self.tolerance:
            self._silent = (began, until)
        else:
            self._silent = (min(began, self._silent[0]), max(until, self._silent[1]))
