"""uvicorn's strictest parser, with the limits that it lacks: on the head's size, its fields, its time, on connections, and on
callers who don't read.

httptools refuses what smuggles requests (Content-Length with Transfer-Encoding, bare line feeds, folded fields), but takes a
head of 40 MB, and waits for one without end. `docs/http.md` tells all of the rules.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from secrets import token_hex
from typing import Any

import httptools

from app.edge.connection import forsake
from app.edge.cork import Cork
from app.edge.echo import Fields
from app.edge.head import fault_of
from app.edge.offer import Declining
from app.edge.problem import farewell
from app.edge.stall import Stall
from app.errors import HeadersTooLarge, Malformed, Overloaded, Refusal, RequestTimeout

_MAX_FIELDS = 100
_FRAMING = 8  # bytes on the wire for each byte of a body: chunks of one byte have 6

Tell = Callable[[str, Refusal], None]


@dataclass(frozen=True, slots=True)
class WireLimits:
    head_bytes: int
    head_seconds: float
    connections: int
    stall_seconds: float
    hosts: frozenset[bytes] = frozenset()
    """That a request may be for; any, if there are none."""


Say = Callable[[bytes, Fields, Fields], bytes | None]
"""The answer to a POST to a target with such fields, where it is known without a request being made of it."""


def _nothing(target: bytes, headers: Fields, more: Fields) -> None:
    return None


class _Refused(Exception):
    """Ends httptools' parsing from within one of its callbacks."""


class Wire(Declining):
    """Bound to its limits by `limited`, since uvicorn makes the instances. `tell` hears of every refusal, by its request id."""

    limits: WireLimits
    tell: Tell
    say: Say

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._refusal: Refusal | None = None
        self._version = "1.1"
        self._in_head = True
        self._in_body = False
        self._head_bytes = 0  # that the parser has told of
        self._raw_bytes = 0  # of the unfinished head, or of the body; the parser tells of a field only at its end
        self._body_bytes = 0
        self._timer: asyncio.TimerHandle | None = None
        self._due: Refusal | None = None  # of what came behind a request that still runs

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.transport = Cork(transport, self.loop)  # type: ignore[assignment]
        self._stall = Stall(transport, self.loop, self.limits.stall_seconds)
        self._time(self._late)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        self._stall.stop()
        super().connection_lost(exc)

    def parse(self, data: bytes) -> None:
        self._raw_bytes = self._raw_bytes + len(data) if self._in_head or self._in_body else 0
        try:
            self.feed(data)
        except httptools.HttpParserError:
            self._refuse(self._refusal or Malformed("this is not HTTP/1.1 as this gateway takes it"))
        if self.is_over or self.transport.is_closing():
            return
        if self._in_head:
            if self._raw_bytes > self.limits.head_bytes:
                self._refuse(self._too_large())
            else:
                self._time(self._late)
        elif self._in_body:
            if self._raw_bytes > self.limits.head_bytes + _FRAMING * self._body_bytes:
                self._refuse(Malformed("the chunks of the body hold hardly any of it"))
            elif self.cycle.response_complete:
                self._time(self.transport.close)  # refused without it; its rest is thrown away, and must not drip for ever
        elif self.cycle.response_complete and self.timeout_keep_alive_task is None:
            # uvicorn begins to wait when it has answered; what came since then was the rest of a body, or a blank line.
            self.timeout_keep_alive_task = self.loop.call_later(self.timeout_keep_alive, self.timeout_keep_alive_handler)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head, self._in_body = True, False
        self._head_bytes = 0

    def on_url(self, url: bytes) -> None:
        super().on_url(url)
        self._head_bytes += len(url)
        if self._head_bytes > self.limits.head_bytes:
            self._abort(self._too_large())

    def on_header(self, name: bytes, value: bytes) -> None:
        self._head_bytes += len(name) + len(value) + 4
        if self._head_bytes > self.limits.head_bytes:
            self._abort(self._too_large())
        if not self._in_head:
            return  # a trailer is no header: whoever looked at the head in front of us has not seen it
        name, value = name.lower(), value.rstrip(b" \t")  # RFC 9110, 5.5; httptools leaves what stands behind it
        if name == b"expect" and value.lower() == b"100-continue":
            self.expect_100_continue = True
        self.headers.append((name, value))
        if len(self.headers) > _MAX_FIELDS:
            self._abort(HeadersTooLarge(f"a request may have at most {_MAX_FIELDS} header fields"))

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._raw_bytes = self._body_bytes = 0
        self._stop_timer()
        method, self._version = self.parser.get_method(), self.parser.get_http_version()
        if fault := fault_of(method, self.url, self._version, self.headers, self.limits.hosts):
            self._abort(fault)
        if len(self.connections) > self.limits.connections:
            self._abort(Overloaded("there are too many connections", retry_after=1))
        if self.parser.should_upgrade():
            return
        if self._version == "1.0":
            self.expect_100_continue = False  # such a caller would take the 100 for its answer
        if not (method == b"POST" and self._is_said()):
            self.scope["state"]["target"] = self.url
            super().on_headers_complete()
        self._in_body = True

    def _is_said(self) -> bool:
        """Answers at once what was answered before; the body is thrown away, as that of any request that is answered."""
        if (
            self.cycle is None
            or not self.cycle.response_complete
            or self.flow.write_paused
            or self._version != "1.1"
            or not self.parser.should_keep_alive()
        ):
            return False
        answer = self.say(self.url, self.headers, self.server_state.default_headers)
        if answer is None:
            return False
        self.transport.write(answer)
        self.has_answered = True
        self.on_response_complete()
        return True

    def on_body(self, body: bytes) -> None:
        self._body_bytes += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        if self.parser.should_upgrade():
            return  # it is read again, without the offer
        self._in_body = False
        self._raw_bytes = 0
        self._stop_timer()
        super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._in_body and self.cycle.response_complete:
            self._time(self.transport.close)  # as above
        if self._due is not None and self.unanswered() is None and not self.transport.is_closing():
            self._answer(self._due)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stall.watch()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stall.stop()

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
        if self.ahead:
            self._time(self._late)  # it may have arrived, and not been looked at
        elif not self.transport.is_closing():
            self._refuse(RequestTimeout("the head of the request did not arrive in time"))

    def _refuse(self, refusal: Refusal) -> None:
        """Answers what is at fault once all before it is answered, and closes: what follows can't be trusted."""
        self.is_over = True
        self._stop_timer()
        if self._in_body:
            forsake(self.cycle)
            if self.cycle.response_started:
                self._end()
                return
            if self.pipeline:
                self.pipeline.popleft()
        if self.unanswered() is None:
            self._answer(refusal)
        else:
            self._due = refusal

    def _answer(self, refusal: Refusal) -> None:
        request_id = token_hex(12)
        self.tell(request_id, refusal)
        self.transport.write(farewell(refusal, request_id))
        self._end()

    def _end(self) -> None:
        """Says that no more will come, and lets go a little later: what is closed before all is read resets the connection, and
        the answer with it.
        """
        self._stop_timer()
        if self.transport.can_write_eof():
            self.transport.write_eof()
            self._time(self.transport.close)
        else:
            self.transport.close()


def limited(limits: WireLimits, tell: Tell, say: Say = _nothing) -> type[Wire]:
    return type("LimitedWire", (Wire,), {"limits": limits, "tell": staticmethod(tell), "say": staticmethod(say)})
