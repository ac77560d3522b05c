"""W3C trace context by the letter, and which requests are traced.

A `traceparent` that is malformed, or sent twice, starts a new trace and is never an error. Triton ignores the sampled flag and
traces whatever carries a `traceparent`, so that ours goes out only with a sampled span. `baggage` is neither read nor sent on.
"""

import re
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from random import getrandbits
from threading import Thread
from time import time_ns
from types import TracebackType
from typing import cast

from opentelemetry.sdk.resources import SERVICE_NAME, OTELResourceDetector, Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.sdk.trace.sampling import Decision
from opentelemetry.trace import TraceState

from app.telemetry.otlp import Encoder
from app.telemetry.span import Caller, Kind, Span, Value

_TRACEPARENT = re.compile(rb"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_TRACESTATE_BYTES = 512
_HEEDLESS = ("always_on", "always_off", "traceidratio")
_FAREWELL = 2.0
"""How many seconds the last spans may take to leave. OpenTelemetry would try for ten and more where the collector is away."""


class Tracing:
    """Without an exporter it is off, and costs nothing.

    Where `joins` is False, a caller's trace is not gone on with, and its flag decides nothing: each request starts a trace of
    its own, with a link to the caller's.
    """

    def __init__(self, exporter: SpanExporter | None, *, sampler: str = "", joins: bool = True) -> None:
        self._provider: TracerProvider | None = None
        self._joins = joins
        self._heeds = sampler.lower() not in _HEEDLESS
        if exporter is not None:
            # The sampler is what OTEL_TRACES_SAMPLER says: parent-based, always on, unless it is set.
            self._provider = TracerProvider(shutdown_on_exit=False)
            self._processor = BatchSpanProcessor(exporter)
            self._provider.add_span_processor(self._processor)

    def serve(self, method: str, headers: Mapping[bytes, bytes]) -> Span | None:
        """The SERVER span of a request, a child of its caller's where there is one; it is named once its route is known."""
        if self._provider is None:
            return None
        caller = _caller(headers)
        if caller is None or not self._joins:
            trace = getrandbits(128) or 1
            return Span(trace, method, Kind.SERVER, self._samples(trace, method), link=caller)
        sampled = caller.sampled if self._heeds else self._samples(caller.trace, method)
        return Span(caller.trace, method, Kind.SERVER, sampled, caller.id, caller.state, is_remote=True)

    def step(
        self, parent: Span | None, name: str, kind: Kind = Kind.INTERNAL, attributes: Mapping[str, Value] | None = None
    ) -> AbstractContextManager[Span | None]:
        """A child of the SERVER span; nothing where that is not sampled."""
        if parent is None or not parent.sampled:
            return _NOTHING
        return _Step(self, Span(parent.trace, name, kind, True, parent.id, parent.state, attributes=dict(attributes or ())))

    def end(self, span: Span) -> None:
        if span.sampled:
            span.ended = time_ns()
            self._processor.on_end(cast(ReadableSpan, span))

    def flush(self) -> None:
        """Wait until all that has ended is exported."""
        if self._provider is not None:
            self._provider.force_flush()

    def close(self) -> None:
        """Exports what has ended, in two seconds at most: a collector that is away must not keep a process from ending."""
        if self._provider is not None:
            leaving = Thread(target=self._provider.shutdown, name="last spans", daemon=True)
            leaving.start()
            leaving.join(_FAREWELL)

    def _samples(self, trace: int, name: str) -> bool:
        assert self._provider is not None  # noqa: S101
        return self._provider.sampler.should_sample(None, trace, name).decision is Decision.RECORD_AND_SAMPLE


class _Step:
    """A span for as long as a `with` lasts."""

    __slots__ = ("_span", "_tracing")

    def __init__(self, tracing: Tracing, span: Span) -> None:
        self._tracing = tracing
        self._span = span

    def __enter__(self) -> Span:
        return self._span

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if kind is not None and not self._span.failure:
            self._span.failure = kind.__name__
        self._tracing.end(self._span)


_NOTHING: AbstractContextManager[None] = nullcontext()


def untraced() -> AbstractContextManager[None]:
    """The span of what is not traced."""
    return _NOTHING


def _caller(headers: Mapping[bytes, bytes]) -> Caller | None:
    match = _TRACEPARENT.fullmatch(headers.get(b"traceparent", b""))
    if match is None:
        return None
    version, trace, span, flags, rest = match.groups()
    ids = int(trace, 16), int(span, 16)
    if version == b"ff" or (version == b"00" and rest) or not all(ids):
        return None
    state = headers.get(b"tracestate", b"").decode("latin-1")
    if state:
        fits = state.isascii() and len(state) <= _TRACESTATE_BYTES
        state = TraceState.from_header([state]).to_header() if fits else ""
    return Caller(*ids, bool(int(flags, 16) & 1), state)


def propagated(span: Span | None) -> tuple[tuple[str, str], ...]:
    """The gRPC metadata that makes Triton's spans children of this one; nothing where it is not sampled."""
    if span is None or not span.sampled:
        return ()
    parent = ("traceparent", f"00-{span.trace:032x}-{span.id:016x}-01")
    return (parent, ("tracestate", span.state)) if span.state else (parent,)


def service() -> Mapping[str, object]:
    """Whose spans these are: OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES."""
    told = OTELResourceDetector().detect().attributes
    return Resource.create({SERVICE_NAME: "conch", **told}).attributes


def exporter(environment: Mapping[str, str]) -> SpanExporter | None:
    """By OpenTelemetry's own variables; without an endpoint there is no tracing. What it exports is `Span`s of ours."""
    endpoint = environment.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") or environment.get("OTEL_EXPORTER_OTLP_ENDPOINT")
    disabled = environment.get("OTEL_SDK_DISABLED", "").lower() == "true" or environment.get("OTEL_TRACES_EXPORTER") == "none"
    if not endpoint or disabled:
        return None
    protocol = environment.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL") or environment.get(
        "OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf"
    )
    if protocol == "grpc":
        from opentelemetry.exporter.otlp.proto.grpc import trace_exporter as grpc_exporter

        grpc_exporter.encode_spans = Encoder(service())  # type: ignore[assignment, attr-defined]
        return grpc_exporter.OTLPSpanExporter()
    from opentelemetry.exporter.otlp.proto.http import trace_exporter as http_exporter

    http_exporter.encode_spans = Encoder(service())  # type: ignore[assignment, attr-defined]
    return http_exporter.OTLPSpanExporter()
