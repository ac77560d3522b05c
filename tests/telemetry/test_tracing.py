"""By which of OpenTelemetry's own variables spans leave the process."""

import os
import re
from pathlib import Path
from typing import cast

import pytest
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as Grpc
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as Http
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from app.telemetry.otlp import Encoder
from app.telemetry.span import Caller, Kind, Span, Value
from app.telemetry.tracing import Tracing, exporter, propagated

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


CALLER = b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-"


def sampled(tracing: Tracing, flags: bytes | None = None, times: int = 1) -> int:
    """How many of so many requests are."""
    headers = {} if flags is None else {b"traceparent": CALLER + flags}
    spans = [tracing.serve("GET", headers) for _ in range(times)]
    return sum(span is not None and span.sampled for span in spans)


def test_the_variables_in_the_documents_sample_a_hundredth_and_what_callers_have_sampled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = (Path(__file__).resolve().parents[2] / "docs" / "observability.md").read_text(encoding="utf-8")
    [line] = re.findall(r"^\$ export (.*)$", text, re.MULTILINE)
    for variable in line.split():
        monkeypatch.setenv(*variable.split("=", 1))
    sampler = os.environ["OTEL_TRACES_SAMPLER"]
    tracing = Tracing(InMemorySpanExporter(), sampler=sampler)
    assert 20 < sampled(tracing, times=10_000) < 250
    assert (sampled(tracing, b"01"), sampled(tracing, b"00")) == (1, 0)
    apart = Tracing(InMemorySpanExporter(), sampler=sampler, joins=False)
    assert 20 < sampled(apart, b"01", times=10_000) < 250, "a stranger's flag decides nothing"
    for each in (tracing, apart):
        each.close()


def test_what_is_not_sampled_has_an_id_for_the_log_and_no_steps() -> None:
    spans = InMemorySpanExporter()
    tracing = Tracing(spans)
    span = tracing.serve("GET", {b"traceparent": CALLER + b"00"})
    assert span is not None
    assert span.trace_id == "4bf92f3577b34da6a3ce929d0e0e4736"
    assert propagated(span) == ()
    with tracing.step(span, "admission") as step:
        assert step is None
    tracing.end(span)
    tracing.close()
    assert not spans.get_finished_spans()


def test_a_step_that_raises_is_a_failure_by_its_kind_and_not_by_its_words() -> None:
    spans = InMemorySpanExporter()
    tracing = Tracing(spans)
    with pytest.raises(KeyError), tracing.step(tracing.serve("GET", {}), "admission"):
        raise KeyError("secret")
    tracing.close()
    [span] = cast(tuple[Span], spans.get_finished_spans())
    assert (span.name, span.failure) == ("admission", "KeyError")


SAMPLERS = {
    "always_on": [1, 1, 1],
    "always_off": [0, 0, 0],
    "traceidratio": [0, 0, 0],
    "parentbased_always_on": [1, 0, 1],
    "parentbased_always_off": [0, 0, 1],
    "parentbased_traceidratio": [0, 0, 1],
    "nonsense": [1, 0, 1],
}


@pytest.mark.parametrize(("sampler", "taken"), SAMPLERS.items())
def test_each_sampler_does_what_it_is_called(monkeypatch: pytest.MonkeyPatch, sampler: str, taken: list[int]) -> None:
    """Of what has no caller, of what its caller has not sampled, and of what it has."""
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", sampler)
    monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", "0")
    tracing = Tracing(InMemorySpanExporter(), sampler=sampler)
    assert [sampled(tracing, flags) for flags in (None, b"00", b"01")] == taken
    tracing.close()


VALUES: dict[str, Value] = {
    "text": "a",
    "empty": "",
    "unicode": "\u00e4\U0001f600" * 30,
    "long": "x" * 20_000,
    "zero": 0,
    "large": 2**62,
    "negative": -5,
    "yes": True,
    "no": False,
    "fraction": -0.25,
}


def test_the_bytes_of_a_span_are_what_protobuf_reads() -> None:
    link = Caller(3, 4, sampled=True, state="b=2")
    span = Span(1, "GET /", Kind.SERVER, True, 2, "a=1", True, link, VALUES, "boom", 7, 2**60, 2**61)
    [resource] = Encoder({"service.name": "front", "count": 5})([span, Span(9, "admission")]).resource_spans
    assert {item.key: item.value.string_value for item in resource.resource.attributes} == {
        "service.name": "front",
        "count": "5",
    }
    [scope] = resource.scope_spans
    read, plain = scope.spans
    assert (scope.scope.name, read.name, read.kind, read.trace_state) == ("conch", "GET /", 2, "a=1")
    assert [int.from_bytes(number, "big") for number in (read.trace_id, read.span_id, read.parent_span_id)] == [1, 7, 2]
    assert (read.start_time_unix_nano, read.end_time_unix_nano) == (2**60, 2**61)
    got = {item.key: getattr(item.value, item.value.WhichOneof("value") or "") for item in read.attributes}
    assert got == VALUES
    assert {name: type(value) for name, value in got.items()} == {name: type(value) for name, value in VALUES.items()}
    assert (read.status.code, read.status.message) == (2, "boom")
    [linked] = read.links
    assert (linked.trace_id[-1], linked.span_id[-1], linked.trace_state) == (3, 4, "b=2")
    assert (read.flags, plain.flags) == (0x300, 0x100)
    assert (len(plain.trace_id), len(plain.span_id), plain.parent_span_id, plain.kind) == (16, 8, b"", 1)
    assert (plain.status.code, list(plain.attributes), list(plain.links)) == (0, [], [])
