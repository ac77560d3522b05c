"""uvicorn's strictest parser, with the limits that it lacks: on the head's size, its fields, its time, and on connections.

httptools refuses what smuggles requests (Content-Length with Transfer-Encoding, bare line feeds, folded fields), but takes a
head of 40 MB, and waits for one without end.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from secrets import token_hex
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from app.edge.problem import headers, problem
from app.errors import HeadersTooLarge, Malformed, Overloaded, Refusal, RequestTimeout

_MAX_FIELDS = 100

Tell = Callable[[str, Refusal], None]


@dataclass(frozen=True, slots=True)
class WireLimits:
    head_bytes: int
    head_seconds: float
    connections: int


class _Refused(Exception):
    """Ends httptools' parsing from within one of its callbacks."""


class _Cork:
    """A transport whose writes of one turn of the event loop leave together. uvicorn sends a head and its body one by one; the
    second system call is about 5 % of a request's CPU (measured side by side, four rounds).
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._held: list[bytes] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        if not self._held:
            self._loop.call_soon(self.flush)
        self._held.append(data)

    def flush(self) -> None:
        held, self._held = self._held, []
        if held and not self._transport.is_closing():
            self._transport.write(b"".join(held))

    def write_eof(self) -> None:
        self.flush()
        self._transport.write_eof()

    def close(self) -> None:
        self.flush()
        self._transport.close()


class Wire(HttpToolsProtocol):
    """Bound to its limits by `limited`, since uvicorn makes the instances. `tell` hears of every refusal, by its request id."""

    limits: WireLimits
    tell: Tell

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._refusal: Refusal | None = None
        self._in_head = True
        self._in_body = False
        self._head_bytes = 0  # that the parser has told of
        self._raw_bytes = 0  # that arrived before the head was complete; the parser tells of a field only at its end
        self._timer: asyncio.TimerHandle | None = None
        self._is_over = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.transport = _Cork(transport, self.loop)  # type: ignore[assignment]
        self._time(self._late)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._is_over:
            return
        self._raw_bytes = self._raw_bytes + len(data) if self._in_head else 0
        super().data_received(data)
        if self._in_head and not self._is_over and not self.transport.is_closing():
            if self._raw_bytes > self.limits.head_bytes:
                self._refuse(self._too_large())
            else:
                self._time(self._late)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head = True
        self._head_bytes = 0

    def on_url(self, url: bytes) -> None:
        super().on_url(url)
        self._count(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        super().on_header(name, value)
        self._count(len(name) + len(value) + 4)
        if len(self.headers) > _MAX_FIELDS:
            self._abort(HeadersTooLarge(f"a request may have at most {_MAX_FIELDS} header fields"))

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._in_body = True
        self._raw_bytes = 0
        self._stop_timer()
        hosts = sum(name == b"host" for name, _ in self.headers)
        if hosts > 1 or (hosts == 0 and self.parser.get_http_version() != "1.0"):
            self._abort(Malformed("a request must have exactly one Host field"))
        if len(self.connections) > self.limits.connections:
            self._abort(Overloaded("there are too many connections", retry_after=1))
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._in_body = False
        self._stop_timer()
        super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._in_body:  # refused without it; its rest is thrown away as it comes, and must not drip for ever
            self._time(self.transport.close)

    def send_400_response(self, msg: str) -> None:
        self._refuse(self._refusal or Malformed("this is not HTTP/1.1 as this gateway takes it"))

    def _count(self, size: int) -> None:
        self._head_bytes += size
        if self._head_bytes > self.limits.head_bytes:
            self._abort(self._too_large())

    def _too_large(self) -> Refusal:
        return HeadersTooLarge(f"the head of a request may have at most {self.limits.head_bytes} bytes")

    def _abort(self, refusal: Refusal) -> None:
        self._refusal = refusal
        raise _Refused

    def _time(self, then: Callable[[], None]) -> None:
        if self._timer is None:
            self._timer = self.loop.call_later(self.limits.head_seconds, then)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _late(self) -> None:
        self._timer = None
        if not self.transport.is_closing():
            self._refuse(RequestTimeout("the head of the request did not arrive in time"))

    def _refuse(self, refusal: Refusal) -> None:
        """Answers in the one shape of all errors, and closes: what follows on the connection can't be trusted."""
        request_id = token_hex(12)
        body = problem(refusal, request_id, "")
        fields = [
            *headers(refusal),
            (b"x-request-id", request_id.encode()),
            (b"content-length", str(len(body)).encode()),
            (b"connection", b"close"),
        ]
        self.tell(request_id, refusal)
        head = b"".join([STATUS_LINE[refusal.status], *(b"%s: %s\r\n" % field for field in fields), b"\r\n"])
        self.transport.write(head + body)
        self._end()

    def _end(self) -> None:
        """Says that no more will come, and lets go a little later: what is closed before all is read resets the connection, and
        the answer with it.
        """
        self._is_over = True
        self._stop_timer()
        if self.transport.can_write_eof():
            self.transport.write_eof()
            self._time(self.transport.close)
        else:
            self.transport.close()


def limited(limits: WireLimits, tell: Tell) -> type[Wire]:
    return type("LimitedWire", (Wire,), {"limits": limits, "tell": staticmethod(tell)})
