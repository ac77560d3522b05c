"""What a trace costs a request in CPU: from its head to the bytes that leave for the collector."""

import os
import time
from collections.abc import Sequence
from typing import cast

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from app.edge.observe import described
from app.telemetry.exchange import Exchange
from app.telemetry.otlp import Encoder
from app.telemetry.span import Kind, Span, Value
from app.telemetry.tracing import Tracing, propagated

TIMES, ROUNDS = 500, 40
CALLER = b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-%02d"


class Encoding(SpanExporter):
    """All that an exporter does but the sending, of which there is one for 512 spans."""

    def __init__(self) -> None:
        self._encode = Encoder({"service.name": "conch"})

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self._encode(cast(Sequence[Span], spans)).SerializeToString()
        return SpanExportResult.SUCCESS


def one_request(tracing: Tracing, headers: dict[bytes, bytes]) -> None:
    exchange = Exchange("2f6b0c9e1d3a4b5c6d7e8f90", route="/v1/classify", tenant="acme", model="sentiment", characters=57)
    span = exchange.span = tracing.serve("POST", headers)
    assert span is not None
    exchange.trace_id = span.trace_id
    with tracing.step(span, "admission"):
        pass
    if span.sampled:
        attributes: dict[str, Value] = {
            "triton.model_name": "sentiment",
            "conch.batch": 1,
            "conch.chunk": 1,
            "conch.request_bytes": 300,
        }
        with tracing.step(span, "triton.infer", Kind.CLIENT, attributes) as call:
            assert call is not None
            propagated(call)
            call.attributes |= {"triton.model_version": "1", "conch.response_bytes": 40}
            call.attributes |= {"conch.endpoint": "127.0.0.1:8001", "conch.outcome": "ok", "conch.retry": False}
        tracing.end(described(span, "POST", exchange, 200))


def measure(flags: int) -> float:
    """In µs for each request: the least of some rounds."""
    os.environ.setdefault("OTEL_BSP_MAX_QUEUE_SIZE", "4096")
    tracing = Tracing(Encoding())
    rounds = []
    for _ in range(ROUNDS):
        before = time.process_time()
        for _ in range(TIMES):
            one_request(tracing, {b"traceparent": CALLER % flags})
        tracing.flush()
        rounds.append((time.process_time() - before) / TIMES * 1e6)
    tracing.close()
    return min(rounds)


def main() -> None:
    print(f"{'tracing, sampled, with its export':<34}{measure(1):>10.1f} µs")
    print(f"{'tracing, not sampled':<34}{measure(0):>10.1f} µs")


if __name__ == "__main__":
    main()
