"""Spans by hand, since the ready-made instrumentation costs as much as the whole request, and W3C trace context by the letter.

A `traceparent` that is malformed, or sent twice, starts a new trace and is never an error. Triton ignores the sampled flag and
traces whatever carries a `traceparent`, so that ours goes out only with a sampled span.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext

from opentelemetry import context as otel_context
from opentelemetry.sdk.resources import SERVICE_NAME, OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.trace import (
    NonRecordingSpan,
    Span,
    SpanContext,
    SpanKind,
    StatusCode,
    TraceFlags,
    Tracer,
    TraceState,
    set_span_in_context,
)

_TRACEPARENT = re.compile(rb"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_TRACESTATE_BYTES = 512


class Tracing:
    """`tracer` is None where tracing is off, which then costs nothing."""

    def __init__(self, exporter: SpanExporter | None, service: str = "conch") -> None:
        self.tracer: Tracer | None = None
        self._provider: TracerProvider | None = None
        if exporter is not None:
            # The sampler is what OTEL_TRACES_SAMPLER says: parent-based, always on, unless it is set.
            told = OTELResourceDetector().detect().attributes  # OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES
            self._provider = TracerProvider(resource=Resource.create({SERVICE_NAME: service, **told}))
            self._provider.add_span_processor(BatchSpanProcessor(exporter))
            self.tracer = self._provider.get_tracer("conch")

    def serve(self, method: str, headers: Mapping[bytes, bytes]) -> Span | None:
        """The SERVER span of a request, a child of its caller's where there is one; it is named once its route is known."""
        if self.tracer is None:
            return None
        parent = _parent(headers)
        context = set_span_in_context(NonRecordingSpan(parent)) if parent else otel_context.Context()
        attributes = {"http.request.method": method}
        return self.tracer.start_span(method, context=context, kind=SpanKind.SERVER, attributes=attributes)

    def step(self, parent: Span | None, name: str, kind: SpanKind = SpanKind.INTERNAL) -> AbstractContextManager[Span | None]:
        """A child of the SERVER span; nothing where that is not sampled."""
        if self.tracer is None or parent is None or not parent.is_recording():
            return _NOTHING
        return _ended(self.tracer.start_span(name, context=set_span_in_context(parent), kind=kind))

    def close(self) -> None:
        if self._provider is not None:
            self._provider.shutdown()


_NOTHING: AbstractContextManager[None] = nullcontext()


@contextmanager
def _ended(span: Span) -> Iterator[Span]:
    try:
        yield span
    except BaseException as error:
        span.set_status(StatusCode.ERROR, type(error).__name__)
        raise
    finally:
        span.end()


def _parent(headers: Mapping[bytes, bytes]) -> SpanContext | None:
    match = _TRACEPARENT.fullmatch(headers.get(b"traceparent", b""))
    if match is None:
        return None
    version, trace, span, flags, rest = match.groups()
    if version == b"ff" or (version == b"00" and rest) or not int(trace, 16) or not int(span, 16):
        return None
    state = headers.get(b"tracestate", b"").decode("latin-1")
    return SpanContext(
        int(trace, 16),
        int(span, 16),
        is_remote=True,
        trace_flags=TraceFlags(int(flags, 16) & TraceFlags.SAMPLED),
        trace_state=TraceState.from_header([state]) if state.isascii() and len(state) <= _TRACESTATE_BYTES else None,
    )


def propagated(span: Span | None) -> tuple[tuple[str, str], ...]:
    """The gRPC metadata that makes Triton's spans children of this one; nothing where it is not sampled."""
    if span is None:
        return ()
    context = span.get_span_context()
    if not context.trace_flags.sampled:
        return ()
    parent = ("traceparent", f"00-{context.trace_id:032x}-{context.span_id:016x}-01")
    state = context.trace_state.to_header()
    return (parent, ("tracestate", state)) if state else (parent,)


def exporter(environment: Mapping[str, str]) -> SpanExporter | None:
    """By OpenTelemetry's own variables; without an endpoint there is no tracing."""
    endpoint = environment.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") or environment.get("OTEL_EXPORTER_OTLP_ENDPOINT")
    disabled = environment.get("OTEL_SDK_DISABLED", "").lower() == "true" or environment.get("OTEL_TRACES_EXPORTER") == "none"
    if not endpoint or disabled:
        return None
    protocol = environment.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL") or environment.get(
        "OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf"
    )
    if protocol == "grpc":
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcExporter

        return GrpcExporter()
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpExporter

    return HttpExporter()
