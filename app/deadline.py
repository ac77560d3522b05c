"""Time as a value."""

from dataclasses import dataclass
from time import monotonic


@dataclass(frozen=True, slots=True)
class Deadline:
    """The moment after which an answer is worthless, on the monotonic clock, in seconds."""

    at: float

    @classmethod
    def after(cls, seconds: float, since: float | None = None) -> "Deadline":
        """`seconds` from `since` (a `monotonic()` reading), or from now."""
        return cls((monotonic() if since is None else since) + seconds)

    def remaining(self) -> float:
        """Seconds left; zero or less once the deadline has passed."""
        return self.at - monotonic()
