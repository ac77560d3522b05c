"""Triton's failures, told apart and turned into ours, by one table.

Triton reports a full queue, a queue timeout, a shutdown, a missing version and a dead host with the same code, UNAVAILABLE, so
that the message has to be read too. The messages are those of Triton's source (`core/src`, `server/src/grpc`) and of gRPC's
core, seen live on 24.10. They are matched here and go no further.
"""

import re
from dataclasses import dataclass
from typing import Literal

from grpc import StatusCode

from app.errors import (
    BadUpstreamResponse,
    DeadlineExceeded,
    ModelUnavailable,
    Overloaded,
    Refusal,
    TooLarge,
    Unavailable,
    UpstreamError,
)

Suspicion = Literal["none", "silence", "doubt", "contract", "ensemble", "ensembles", "endpoint"]
"""What a failed call says of where it failed. `none`: nothing. `silence`: it was no answer, which tells nothing by itself.
`doubt`: it may be ill, where it happens again and again. `contract`: the same, and the model may be another one by now. The
rest is proof: one ensemble is ill here, or all are, or the endpoint itself is gone.
"""


@dataclass(frozen=True, slots=True)
class Failure:
    """What one failed call means: what the caller is told, whether another endpoint may be tried, and what was proven ill."""

    name: str
    """A stable word for metrics and logs."""
    refusal: type[Refusal]
    detail: str
    elsewhere: bool = False
    executed: bool = True
    suspect: Suspicion = "none"
    retry_after: int | None = None

    def refuse(self) -> Refusal:
        return self.refusal(self.detail, retry_after=self.retry_after)


def _unready(name: str, detail: str, suspect: Suspicion = "ensemble", refusal: type[Refusal] = ModelUnavailable) -> Failure:
    return Failure(name, refusal, detail, elsewhere=True, executed=False, suspect=suspect, retry_after=1)


LATE = Failure("deadline", DeadlineExceeded, "the model did not answer in the time given", suspect="silence")
_FULL = Failure("queue_full", Overloaded, "the model's queue is full", executed=False, suspect="silence", retry_after=1)
_WAITED = Failure(
    "queue_timeout",
    Overloaded,
    "the request waited in the model's queue for too long",
    executed=False,
    suspect="silence",
    retry_after=1,
)
STOPPING = _unready("stopping", "the model server is shutting down", "endpoint", Unavailable)
_ABSENT = _unready("not_ready", "the model is not loaded at present")
_RESTRICTED = _unready("restricted", "the model server refuses the gateway", "ensembles")
GONE = _unready("unreachable", "the model server can't be reached", "endpoint", Unavailable)
_STRANGE = _unready("unimplemented", "what answers is not the model server that was expected", "ensembles")
_CUT = Failure("cut_off", Unavailable, "the connection to the model server broke", True, suspect="doubt", retry_after=1)
_SHED = Failure("model_unavailable", ModelUnavailable, "the model can't answer now", True, suspect="doubt", retry_after=1)
_DROPPED = Failure(
    "cancelled_by_server", Unavailable, "the model server dropped the request", True, suspect="doubt", retry_after=1
)
_DEAD = Failure("step_dead", ModelUnavailable, "a step of the model has died", True, suspect="ensemble", retry_after=5)
_GPU = Failure("gpu_lost", Unavailable, "the model server lost its GPU", True, suspect="ensembles", retry_after=5)
_MEMORY = Failure("shm_full", Overloaded, "the model server is out of memory", suspect="doubt", retry_after=1)
_BIG = Failure("too_large", TooLarge, "the request is too large for the model server", executed=False)
_BIG_ANSWER = Failure("answer_too_large", UpstreamError, "the model's answer is too large")
_REFUSED = Failure("refused", UpstreamError, "the model server refused the gateway's request", suspect="contract")
_FAILED = Failure("failed", UpstreamError, "the model failed on this request", suspect="doubt")
BAD_ANSWER = Failure("bad_upstream_response", BadUpstreamResponse, "the model's answer can't be trusted", suspect="contract")
MODELS_OWN = (_FAILED, _REFUSED, BAD_ANSWER)
"""The model is there, and does not like what it was asked."""
WORDLESS = (LATE, GONE, _CUT)
"""Nobody has said anything: gRPC itself tells of it."""

_BROKEN = (
    "socket closed|connection reset|broken pipe|goaway|stream removed|transport closed|end of tcp stream|endpoint closing"
    "|keepalive|too many pings|http2 header with status|upstream connect error|max connection age|cancelling all calls"
)
"""What gRPC's core says, or a proxy, of a connection that broke."""

_TABLE: tuple[tuple[StatusCode, str, Failure], ...] = (
    (StatusCode.DEADLINE_EXCEEDED, "", LATE),
    (StatusCode.UNAVAILABLE, "exceeds maximum queue size", _FULL),
    (StatusCode.UNAVAILABLE, "request timeout expired", _WAITED),
    (StatusCode.UNAVAILABLE, "server is stopping|shutting down|server exiting", STOPPING),
    (StatusCode.UNAVAILABLE, "not at ready state|is not ready", _ABSENT),
    (StatusCode.UNAVAILABLE, "protocol is restricted", _RESTRICTED),
    (StatusCode.UNAVAILABLE, "failed to connect|connection refused|errors resolving|dns resolution|no route to host", GONE),
    (StatusCode.UNAVAILABLE, f"{_BROKEN}|^$", _CUT),
    # Any other words are those of a step, and a step must not take the whole endpoint from the other models.
    (StatusCode.UNAVAILABLE, "", _SHED),
    (StatusCode.NOT_FOUND, "", _ABSENT),
    (StatusCode.INVALID_ARGUMENT, "unknown model", _ABSENT),
    (StatusCode.INVALID_ARGUMENT, "unexpected deadlock", _FAILED),
    (StatusCode.INVALID_ARGUMENT, "", _REFUSED),
    (StatusCode.INTERNAL, "stub process .* is not healthy|stub process .* (died|exited)", _DEAD),
    (StatusCode.INTERNAL, "cuda error|device-side assert|illegal memory access|cuda failure", _GPU),
    (StatusCode.INTERNAL, "shared memory pool|no space left", _MEMORY),
    (StatusCode.INTERNAL, f"rst_stream|{_BROKEN}", _CUT),
    (StatusCode.UNKNOWN, "^stream removed", _CUT),
    (StatusCode.CANCELLED, "", _DROPPED),
    (StatusCode.RESOURCE_EXHAUSTED, "sent message larger", _BIG),
    (StatusCode.RESOURCE_EXHAUSTED, "received message larger", _BIG_ANSWER),
    (StatusCode.UNIMPLEMENTED, "decoupled transaction policy", _REFUSED),
    (StatusCode.UNIMPLEMENTED, "^$|method not found|http2 header with status", _STRANGE),
)
_PATTERNS = tuple((code, re.compile(pattern, re.IGNORECASE), failure) for code, pattern, failure in _TABLE)


def classify(code: StatusCode, message: str) -> Failure:
    """The first row that fits; a failure that none describes is the model's own."""
    for row_code, pattern, failure in _PATTERNS:
        if row_code is code and pattern.search(message):
            return failure
    return _FAILED
