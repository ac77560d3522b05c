"""The outermost layer: request ids, the access line, RED metrics, the headers that every answer has, and the last catch."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from time import monotonic

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.edge.compressed import Compressed, coding_for
from app.edge.cross_origin import CrossOrigin
from app.edge.echo import Echo, Record
from app.edge.fields import fields_of, request_id_of
from app.edge.problem import send_problem
from app.errors import ClientClosed, Internal, Overloaded, Refusal
from app.telemetry.exchange import Exchange
from app.telemetry.metrics import Metrics
from app.telemetry.span import Span
from app.telemetry.tracing import Tracing

log = logging.getLogger("conch.edge")

_KEPT_BY_NOBODY = (b"cache-control", b"no-store")  # a cache heeds Authorization by itself, and X-API-Key not at all


class Observe:
    def __init__(
        self,
        app: ASGIApp,
        metrics: Metrics,
        tracing: Tracing,
        record: Record,
        route_of: Callable[[Scope], str],
        draining: Callable[[], bool],
        echo: Echo,
        gzip_least: int = 0,
        cross_origin: CrossOrigin | None = None,
    ) -> None:
        self._app = app
        self._metrics = metrics
        self._tracing = tracing
        self._record = record
        self._echo = echo
        self._route_of = route_of
        self._draining = draining
        self._gzip_least = gzip_least
        self._cross_origin = cross_origin

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        exchange = Exchange(request_id_of(headers.get(b"x-request-id", b"")))
        scope["state"]["exchange"] = exchange
        span = exchange.span = self._tracing.serve(scope["method"], _single(scope, headers))
        if span is not None:
            exchange.trace_id = span.trace_id
        accepted = headers.get(b"accept-encoding")
        if accepted is not None and self._gzip_least and (coding := coding_for(accepted)):
            send = Compressed(send, self._gzip_least, coding)
        answer = _Answer(
            send, exchange, self._cross_origin.fields(headers) if self._cross_origin else (), closing=self._draining()
        )
        self._metrics.running += 1
        try:
            await self._serve(scope, receive, answer)
        finally:
            self._metrics.running -= 1
            self._close(scope, exchange, answer.status)

    async def _serve(self, scope: Scope, receive: Receive, answer: "_Answer") -> None:
        exchange = answer.exchange
        try:
            await self._app(scope, receive, answer)
        except ClientClosed as refusal:
            exchange.code, answer.status = refusal.code, refusal.status
        except Refusal as refusal:
            await answer.refuse(refusal, scope["path"])
            if (recall := scope["state"].get("recall")) is not None:
                exchange.route = self._route_of(scope)
                self._echo.keep(scope, exchange, recall, answer.more)
        except asyncio.CancelledError:
            # The process ends, and has waited for long enough. uvicorn would answer in a shape of its own.
            await answer.refuse(Overloaded("this gateway ends, and can't wait for the answer", retry_after=1), scope["path"])
            raise
        except Exception:  # the outermost edge: whatever it is, the caller gets our shape and the log gets the place
            log.exception("a request failed", extra={"request_id": exchange.request_id, "trace_id": exchange.trace_id})
            await answer.refuse(Internal("Conch failed; the log has more under this request_id"), scope["path"])

    def _close(self, scope: Scope, exchange: Exchange, status: int) -> None:
        exchange.route = self._route_of(scope)
        self._record(exchange, scope["method"], status)


def described(span: Span, method: str, exchange: Exchange, status: int) -> Span:
    span.name = f"{method} {exchange.route}"
    span.attributes = {
        "http.request.method": method,
        "http.route": exchange.route,
        "http.response.status_code": status,
        "conch.request_id": exchange.request_id,
        "conch.tenant": exchange.tenant,
        "conch.model": exchange.model,
        "conch.code": exchange.code,
        "conch.inputs": exchange.inputs,
        "conch.characters": exchange.characters,
    }
    if status >= 500:
        span.failure = exchange.code
    return span


class _Answer:
    """`send`, with the headers that every answer carries."""

    def __init__(self, send: Send, exchange: Exchange, more: Sequence[tuple[bytes, bytes]], *, closing: bool) -> None:
        self._send = send
        self.more = more
        self._closing = closing
        self.exchange = exchange
        self.status = 0

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            if self.exchange.answered:
                self.exchange.encode = monotonic() - self.exchange.answered
            own = message.get("headers", ())
            message["headers"] = [*own, *fields_of(self.exchange), *self.more]
            if not any(name == b"cache-control" for name, _ in own):
                message["headers"].append(_KEPT_BY_NOBODY)
            if self._closing:
                message["headers"].append((b"connection", b"close"))
        await self._send(message)

    async def refuse(self, refusal: Refusal, path: str) -> None:
        self.exchange.code = refusal.code
        if self.status == 0:
            await send_problem(self, refusal, self.exchange.request_id, path)


def _single(scope: Scope, headers: dict[bytes, bytes]) -> dict[bytes, bytes]:
    """Two `traceparent` headers are as good as none; `tracestate` may be spread over several."""
    if b"traceparent" not in headers or len(headers) == len(scope["headers"]):
        return headers
    if sum(name == b"traceparent" for name, _ in scope["headers"]) > 1:
        return {}
    return {**headers, b"tracestate": b",".join(value for name, value in scope["headers"] if name == b"tracestate")}
