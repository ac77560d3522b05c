"""One request and its answer, as telemetry sees them."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from time import monotonic

from app.telemetry.span import Span


@dataclass(slots=True)
class Exchange:
    """What a request leaves behind: the edge opens it, the path of the request fills it in, the edge writes it down.

    It holds sizes, names and times, and never a character of a tenant's text. Times are in seconds.
    """

    request_id: str
    started: float = field(default_factory=monotonic)
    route: str = "unmatched"
    """The path's template, so that the values of a metric's label are bounded."""
    tenant: str = ""
    key_id: str = ""
    model: str = ""
    ensemble: str = ""
    code: str = "ok"
    inputs: int = 0
    characters: int = 0
    tokens: int = 0
    chunks: int = 0
    outcomes: dict[str, int] = field(default_factory=dict)
    """Of the lines of a bulk post: how many were `ok`, or failed for which code."""
    limiter: str = ""
    """`admitted`, or the code of the refusal; empty where no limiter was asked."""
    degraded: bool = False
    remembered: bool = False
    """Refused from memory."""
    shadowed: Sequence[str] = ()
    """Limits in shadow mode that would have refused."""
    limit_headers: Sequence[tuple[bytes, bytes]] = ()
    trace_id: str = ""
    span: Span | None = None
    """The SERVER span, where tracing is on."""
    auth: float = 0.0
    parse: float = 0.0
    admission: float = 0.0
    queue: float = 0.0
    triton: float = 0.0
    encode: float = 0.0
    answered: float = 0.0
    """When the model's answer was there, on the clock of `started`."""

    def elapsed(self) -> float:
        return monotonic() - self.started

    @property
    def sampled_trace(self) -> str:
        """The id of a trace that somebody can look up; empty where there is none."""
        return self.trace_id if self.span is not None and self.span.sampled else ""
