"""Where spans go: collectors for OTLP over gRPC and over HTTP, in protobuf as an SDK sends it or in JSON as Triton does."""

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import grpc
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest, ExportTraceServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc import (
    TraceServiceServicer,
    add_TraceServiceServicer_to_server,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue


@dataclass(frozen=True, slots=True)
class SeenSpan:
    """Ids in hex; `kind` and `status` as OTLP numbers them (2 SERVER, 3 CLIENT; 2 ERROR)."""

    trace: str
    id: str
    parent: str
    name: str
    kind: int
    status: int
    service: str
    attributes: dict[str, Any]
    links: tuple[tuple[str, str], ...] = ()
    """The trace and the span of each."""


@dataclass(slots=True)
class Sink:
    url: str
    spans: list[SeenSpan] = field(default_factory=list)

    def all(self, trace: str, name: str) -> list[SeenSpan]:
        return [span for span in self.spans if (span.trace, span.name) == (trace, name)]

    def of(self, trace: str) -> dict[str, SeenSpan]:
        """The spans of one trace, by name."""
        return {span.name: span for span in self.spans if span.trace == trace}


@contextmanager
def listening() -> Iterator[Sink]:
    sink = Sink("")

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            is_json = "json" in self.headers["content-type"]
            sink.spans.extend(
                _from_json(json.loads(body)) if is_json else _from_protobuf(ExportTraceServiceRequest.FromString(body))
            )
            self.send_response(200)
            self.send_header("content-length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Collector) as server:
        sink.url = f"http://127.0.0.1:{server.server_port}/v1/traces"
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        yield sink
        server.shutdown()


@contextmanager
def listening_for_grpc() -> Iterator[Sink]:
    sink = Sink("")

    class Collector(TraceServiceServicer):
        def Export(self, request: ExportTraceServiceRequest, context: grpc.ServicerContext) -> ExportTraceServiceResponse:  # noqa: N802
            sink.spans.extend(_from_protobuf(request))
            return ExportTraceServiceResponse()

    server = grpc.server(ThreadPoolExecutor(1))
    add_TraceServiceServicer_to_server(Collector(), server)  # type: ignore[no-untyped-call]
    sink.url = f"http://127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    yield sink
    server.stop(None)


def _from_protobuf(request: ExportTraceServiceRequest) -> Iterator[SeenSpan]:
    for resource in request.resource_spans:
        service = {item.key: item.value.string_value for item in resource.resource.attributes}.get("service.name", "")
        for span in (span for scope in resource.scope_spans for span in scope.spans):
            attributes = {item.key: _value(item.value) for item in span.attributes}
            ids = (span.trace_id.hex(), span.span_id.hex(), span.parent_span_id.hex())
            links = tuple((link.trace_id.hex(), link.span_id.hex()) for link in span.links)
            yield SeenSpan(*ids, span.name, span.kind, span.status.code, service, attributes, links)


def _value(value: AnyValue) -> Any:
    kind = value.WhichOneof("value")
    return getattr(value, kind) if kind else None


def _from_json(document: dict[str, Any]) -> Iterator[SeenSpan]:
    for resource in document["resourceSpans"]:
        for span in (span for scope in resource["scopeSpans"] for span in scope["spans"]):
            attributes = {item["key"]: next(iter(item["value"].values()), None) for item in span.get("attributes", ())}
            ids = (span["traceId"].lower(), span["spanId"].lower(), span.get("parentSpanId", "").lower())
            yield SeenSpan(*ids, span["name"], span.get("kind", 0), 0, "triton", attributes)
