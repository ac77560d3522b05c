"""The outermost layer: request ids, the access line, RED metrics, the headers that every answer has, and the last catch."""

import logging
import re
from collections.abc import Callable
from secrets import token_hex

from opentelemetry.trace import StatusCode
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.edge.problem import send_problem
from app.errors import ClientClosed, Internal, Refusal
from app.telemetry.exchange import Exchange
from app.telemetry.logs import AccessLog
from app.telemetry.metrics import Metrics
from app.telemetry.tracing import Tracing

log = logging.getLogger("conch.edge")

_REQUEST_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")


class Observe:
    def __init__(
        self,
        app: ASGIApp,
        metrics: Metrics,
        tracing: Tracing,
        access: AccessLog | None,
        route_of: Callable[[Scope], str],
        draining: Callable[[], bool],
    ) -> None:
        self._app = app
        self._metrics = metrics
        self._tracing = tracing
        self._access = access
        self._route_of = route_of
        self._draining = draining

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        exchange = Exchange(_request_id(headers))
        scope["state"]["exchange"] = exchange
        span = exchange.span = self._tracing.serve(scope["method"], _single(scope, headers))
        if span is not None:
            exchange.trace_id = f"{span.get_span_context().trace_id:032x}"
        answer = _Answer(send, exchange, closing=self._draining())
        self._metrics.in_flight.inc()
        try:
            await self._serve(scope, receive, answer)
        finally:
            self._metrics.in_flight.dec()
            self._close(scope, exchange, answer.status)

    async def _serve(self, scope: Scope, receive: Receive, answer: "_Answer") -> None:
        exchange = answer.exchange
        try:
            await self._app(scope, receive, answer)
        except ClientClosed as refusal:
            exchange.code, answer.status = refusal.code, refusal.status
        except Refusal as refusal:
            await answer.refuse(refusal, scope["path"])
        except Exception:  # the outermost edge: whatever it is, the caller gets our shape and the log gets the place
            log.exception("request %s failed", exchange.request_id)
            await answer.refuse(Internal("Conch failed; the log has more under this request_id"), scope["path"])

    def _close(self, scope: Scope, exchange: Exchange, status: int) -> None:
        exchange.route = self._route_of(scope)
        self._metrics.record(exchange, status)
        if self._access is not None:
            self._access.record(exchange, scope["method"], status)
        span = exchange.span
        if span is not None:
            if span.is_recording():
                span.update_name(f"{scope['method']} {exchange.route}")
                span.set_attributes(
                    {"http.route": exchange.route, "http.response.status_code": status, "conch.tenant": exchange.tenant}
                )
                span.set_attributes(
                    {"conch.model": exchange.model, "conch.code": exchange.code, "conch.inputs": exchange.inputs}
                )
                if status >= 500:
                    span.set_status(StatusCode.ERROR, exchange.code)
            span.end()


class _Answer:
    """`send`, with the headers that every answer carries."""

    def __init__(self, send: Send, exchange: Exchange, *, closing: bool) -> None:
        self._send = send
        self._closing = closing
        self.exchange = exchange
        self.status = 0

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            message["headers"] = [*message.get("headers", ()), *_fields(self.exchange)]
            if self._closing:
                message["headers"].append((b"connection", b"close"))
        await self._send(message)

    async def refuse(self, refusal: Refusal, path: str) -> None:
        self.exchange.code = refusal.code
        if self.status == 0:
            await send_problem(self, refusal, self.exchange.request_id, path)


def _request_id(headers: dict[bytes, bytes]) -> str:
    given = headers.get(b"x-request-id", b"")
    return given.decode() if _REQUEST_ID.fullmatch(given) else token_hex(12)


def _single(scope: Scope, headers: dict[bytes, bytes]) -> dict[bytes, bytes]:
    """Two `traceparent` headers are as good as none."""
    if b"traceparent" in headers and sum(name == b"traceparent" for name, _ in scope["headers"]) > 1:
        return {}
    return headers


def _fields(exchange: Exchange) -> list[tuple[bytes, bytes]]:
    fields = [
        (b"x-request-id", exchange.request_id.encode()),
        (b"server-timing", _timing(exchange)),
        (b"x-content-type-options", b"nosniff"),
        *exchange.limit_headers,
    ]
    if exchange.degraded:
        fields.append((b"conch-limiter", b"degraded"))
    return fields


def _timing(exchange: Exchange) -> bytes:
    return b"auth;dur=%.2f, admission;dur=%.2f, triton;dur=%.2f, total;dur=%.2f" % (
        exchange.auth * 1000,
        exchange.admission * 1000,
        exchange.triton * 1000,
        exchange.elapsed() * 1000,
    )
