"""What a flood is told, said again without making a request of each."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import NamedTuple

from starlette.types import Scope
from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from app.admission.limiter import Verdict
from app.edge.fields import fields_of, request_id_of, timing
from app.edge.problem import headers as fields_of_refusal
from app.edge.problem import problem
from app.errors import Refusal
from app.telemetry.exchange import Exchange
from app.telemetry.tracing import Tracing
from app.tenancy.key import digest

_SECONDS = 1.0
_CREDENTIALS = (b"authorization", b"x-api-key")
_INERT = frozenset({b"host", b"user-agent", b"accept", b"accept-encoding", b"accept-language", b"connection", b"content-type"})
"""Fields that change nothing of a refusal. Whoever sends others is answered by the long way."""
_OWN = (b"x-request-id", b"server-timing")
_MOST_KEPT = 1_000
_NO_PARENT: dict[bytes, bytes] = {}

Fields = Sequence[tuple[bytes, bytes]]
Record = Callable[[Exchange, str, int], None]
"""Hears of every request that is over, of its method and of the status of its answer."""
Recall = Callable[[int], Verdict | None]
"""The verdict that awaits a request of so many characters, where that is known."""


@dataclass(slots=True)
class _Kept:
    recall: Recall
    exchange: Exchange
    path: str
    more: Fields
    until: float
    refusal: Refusal | None = None
    """Of the verdict that was told last, and how it was told: for a while it is the same."""
    head: bytes = b""
    body: tuple[bytes, bytes] = (b"", b"")
    """Before and after the request's id."""

    def tell(self, refusal: Refusal, verdict: Verdict) -> None:
        self.refusal = refusal
        exchange = self.exchange
        exchange.limit_headers, exchange.shadowed = verdict.headers, verdict.shadowed
        exchange.code = exchange.limiter = refusal.code
        fields = [*fields_of_refusal(refusal), *fields_of(exchange), *self.more]
        self.head = STATUS_LINE[refusal.status] + b"".join([b"%b: %b\r\n" % field for field in fields if field[0] not in _OWN])
        before, _, after = problem(refusal, "\0", self.path).partition(b"\\u0000")
        self.body = before, after


class Echo:
    """Whoever is over the limit and goes on asking is mostly told the very same. The limiter is asked each time whether it
    still is, and each answer is counted and logged as any other; but who it is was found out up to a second before.

    It knows callers by the digest of their key, as everybody here.
    """

    def __init__(self, most_bytes: int, draining: Callable[[], bool], tracing: Tracing, record: Record) -> None:
        self._most_bytes = most_bytes
        self._draining = draining
        self._tracing = tracing
        self._record = record
        self._kept: dict[tuple[bytes, bytes], _Kept] = {}

    def keep(self, scope: Scope, exchange: Exchange, recall: Recall, more: Fields) -> None:
        """A request was refused for what awaits all of its tenant. `more` are fields of its answer, beside those of any."""
        asked = _asked(scope["headers"])
        if asked is not None:
            if len(self._kept) >= _MOST_KEPT:
                self._kept.clear()
            key = scope["state"]["target"], digest(asked.credential)
            self._kept[key] = _Kept(recall, exchange, scope["path"], more, monotonic() + _SECONDS)

    def answer(self, target: bytes, headers: Fields, more: Fields) -> bytes | None:
        """To a POST, where it is known; `more` are the server's own fields."""
        if not self._kept or (asked := _asked(headers)) is None:
            return None
        kept = self._kept.get((target, digest(asked.credential)))
        if kept is None or asked.length > self._most_bytes or self._draining():
            return None
        started = monotonic()
        verdict = kept.recall(asked.length) if started < kept.until else None
        if verdict is None or verdict.refusal is None:
            return None
        if verdict.refusal is not kept.refusal:
            kept.tell(verdict.refusal, verdict)
        exchange = _alike(kept.exchange, request_id_of(asked.request_id), started)
        span = exchange.span = self._tracing.serve("POST", asked.parent)
        if span is not None:
            exchange.trace_id = span.trace_id
        return self._told(kept, exchange, verdict.refusal.status, more)

    def _told(self, kept: _Kept, exchange: Exchange, status: int, more: Fields) -> bytes:
        name, (before, after) = exchange.request_id.encode(), kept.body
        size = len(before) + len(name) + len(after)
        own = b"x-request-id: %b\r\nserver-timing: %b\r\ncontent-length: %d\r\n" % (name, timing(exchange), size)
        self._record(exchange, "POST", status)
        return b"".join((kept.head, *(b"%b: %b\r\n" % field for field in more), own, b"\r\n", before, name, after))


class _Asked(NamedTuple):
    credential: bytes
    length: int
    request_id: bytes
    """As it was given."""
    parent: Mapping[bytes, bytes]
    """The `traceparent`."""


def _asked(headers: Fields) -> _Asked | None:
    """None where it is more than that."""
    credential, length, request_id, parent = b"", b"", b"", _NO_PARENT
    for name, value in headers:
        if name in _INERT:
            continue
        if name in _CREDENTIALS and not credential:
            credential = b"%b %b" % (name, value)
        elif name == b"content-length":
            length = value
        elif name == b"x-request-id":
            request_id = value
        elif name == b"traceparent" and not parent:
            parent = {name: value}
        else:
            return None
    return _Asked(credential, int(length), request_id, parent) if credential and length.isdigit() else None


def _alike(kept: Exchange, request_id: str, started: float) -> Exchange:
    exchange = Exchange(request_id, started, kept.route, kept.tenant, kept.key_id, code=kept.code, limiter=kept.limiter)
    exchange.remembered, exchange.shadowed = True, kept.shadowed
    exchange.admission = monotonic() - started
    return exchange
