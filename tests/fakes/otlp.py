"""Where spans go: a collector for OTLP over HTTP, in protobuf as OpenTelemetry's SDK sends it or in JSON as Triton does."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
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


@dataclass(slots=True)
class Sink:
    url: str
    spans: list[SeenSpan] = field(default_factory=list)

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
            sink.spans.extend(_from_json(json.loads(body)) if is_json else _from_protobuf(body))
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


def _from_protobuf(body: bytes) -> Iterator[SeenSpan]:
    for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
        service = {item.key: item.value.string_value for item in resource.resource.attributes}.get("service.name", "")
        for span in (span for scope in resource.scope_spans for span in scope.spans):
            attributes = {item.key: _value(item.value) for item in span.attributes}
            ids = (span.trace_id.hex(), span.span_id.hex(), span.parent_span_id.hex())
            yield SeenSpan(*ids, span.name, span.kind, span.status.code, service, attributes)


def _value(value: AnyValue) -> Any:
    kind = value.WhichOneof("value")
    return getattr(value, kind) if kind else None


def _from_json(document: dict[str, Any]) -> Iterator[SeenSpan]:
    for resource in document["resourceSpans"]:
        for span in (span for scope in resource["scopeSpans"] for span in scope["spans"]):
            attributes = {item["key"]: next(iter(item["value"].values()), None) for item in span.get("attributes", ())}
            ids = (span["traceId"].lower(), span["spanId"].lower(), span.get("parentSpanId", "").lower())
            yield SeenSpan(*ids, span["name"], span.get("kind", 0), 0, "triton", attributes)
