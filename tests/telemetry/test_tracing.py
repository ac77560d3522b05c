"""By which of OpenTelemetry's own variables spans leave the process."""

import pytest
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as Grpc
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as Http

from app.telemetry.tracing import Tracing, exporter

AT = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}
TRACES_AT = {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://127.0.0.1:1/v1/traces"}
VARIABLES: dict[str, tuple[dict[str, str], type | None]] = {
    "nothing": ({}, None),
    "no endpoint": ({"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, None),
    "an endpoint": (AT, Http),
    "an endpoint of the traces": (TRACES_AT, Http),
    "grpc": ({**AT, "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, Grpc),
    "another protocol for the traces": (
        {**AT, "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf"},
        Http,
    ),
    "disabled": ({**AT, "OTEL_SDK_DISABLED": "true"}, None),
    "no exporter": ({**AT, "OTEL_TRACES_EXPORTER": "none"}, None),
}


@pytest.mark.parametrize(("environment", "kind"), VARIABLES.values(), ids=VARIABLES)
def test_the_environment_says_whether_and_how_spans_leave(environment: dict[str, str], kind: type | None) -> None:
    made = exporter(environment)
    assert made is None if kind is None else isinstance(made, kind)
    if made is not None:
        made.shutdown()


def test_without_an_exporter_tracing_does_nothing() -> None:
    tracing = Tracing(None)
    assert tracing.serve("GET", {b"traceparent": b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}) is None
    with tracing.step(None, "admission") as span:
        assert span is None
    tracing.close()
