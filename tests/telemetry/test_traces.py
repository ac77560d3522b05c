"""One trace, from the caller through the gateway into Triton."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from secrets import token_hex

import grpc
import pytest
import pytest_asyncio

from tests.edge.raw import connected, head
from tests.fakes.otlp import SeenSpan, Sink, listening, listening_for_grpc
from tests.fakes.triton import FakeTriton, aborting
from tests.gateway.problems import CANARY
from tests.gateway.process import ROOT, RunningGateway
from tests.gateway.stage import staged_models
from tests.peers import Redis, Triton, eventually, only

Start = Callable[..., Awaitable[RunningGateway]]
SERVER, CLIENT, ERROR = 2, 3, 2


@pytest.fixture(scope="module")
def sink() -> Iterator[Sink]:
    with listening() as sink:
        yield sink


@dataclass
class Traced:
    gateway: RunningGateway
    fake: FakeTriton
    sink: Sink

    async def classify(self, traceparent: str = "", model: str = "words", **headers: str) -> dict[str, SeenSpan]:
        """The spans of the trace that this request became part of, or started."""
        body = {"model": model, "inputs": [CANARY]}
        given = {"traceparent": traceparent} if traceparent else {}
        answer = await self.gateway.post("/v1/classify", body, headers={**given, **headers})
        return await self.found(answer.headers["x-request-id"])

    async def found(self, request_id: str) -> dict[str, SeenSpan]:
        await eventually(lambda: request_id in self.gateway.log())
        trace = next(line for line in self.gateway.log().splitlines() if request_id in line).split('"trace_id":"')[1][:32]
        await eventually(lambda: "POST /v1/classify" in self.sink.of(trace))
        return self.sink.of(trace)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def traced(gateways: Start, redis: Redis, sink: Sink, staged_routes: object) -> AsyncIterator[Traced]:
    otel = {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": sink.url, "OTEL_BSP_SCHEDULE_DELAY": "100"}
    otel |= {"OTEL_SERVICE_NAME": "front-door", "OTEL_RESOURCE_ATTRIBUTES": "deployment.environment=test"}
    async with FakeTriton.serving(staged_models()) as fake:
        gateway = await gateways(TRITON=fake.address, REDIS_URL=redis.url, ROUTES_FILE=str(staged_routes), **otel)
        yield Traced(gateway, fake, sink)
        await gateway.peer.stop()  # while there is still somebody to send the last spans to


async def test_the_caller_s_span_is_the_parent_and_triton_s_is_the_child(traced: Traced) -> None:
    trace, parent = token_hex(16), token_hex(8)
    traced.fake.forget()
    spans = await traced.classify(f"00-{trace}-{parent}-01", tracestate="a=1,b=2")
    server, admission, client = (spans[name] for name in ("POST /v1/classify", "admission", "triton.infer"))
    assert (server.trace, server.parent, server.kind, server.service) == (trace, parent, SERVER, "front-door")
    assert (admission.parent, client.parent, client.kind) == (server.id, server.id, CLIENT)
    metadata = traced.fake.asked[0].metadata
    assert metadata["traceparent"] == f"00-{trace}-{client.id}-01"
    assert metadata["tracestate"] == "a=1,b=2"


async def test_spans_say_what_was_done_and_no_text(traced: Traced) -> None:
    spans = await traced.classify()
    server, client = spans["POST /v1/classify"].attributes, spans["triton.infer"].attributes
    assert server["http.response.status_code"] == 200
    assert (server["http.request.method"], server["http.route"]) == ("POST", "/v1/classify")
    assert (server["conch.tenant"], server["conch.model"], server["conch.inputs"]) == ("open", "words", 1)
    assert server["conch.code"] == "ok"
    assert server["conch.characters"] == len(CANARY)
    called = {name: client[f"conch.{name}"] for name in ("endpoint", "batch", "chunk", "outcome", "retry")}
    assert called == {"endpoint": traced.fake.address, "batch": 1, "chunk": 1, "outcome": "ok", "retry": False}
    assert (client["triton.model_name"], client["triton.model_version"]) == ("words", "1")
    assert client["conch.request_bytes"] > len(CANARY)
    assert client["conch.response_bytes"] > 12
    assert CANARY not in str([*spans.values()])
    assert traced.gateway.tenants.keys["open"] not in str([*spans.values()])


async def test_each_part_of_a_large_request_has_a_span_of_its_own(traced: Traced) -> None:
    trace, texts = token_hex(16), ["a", "bb", "ccc"] * 3
    traced.fake.forget()
    headers = {"traceparent": f"00-{trace}-{SPAN}-01"}
    answer = await traced.gateway.post("/v1/classify", {"model": "brief", "inputs": texts}, headers=headers)
    assert answer.status_code == 200
    await traced.found(answer.headers["x-request-id"])
    calls = traced.sink.all(trace, "triton.infer")
    assert sorted(call.attributes["conch.batch"] for call in calls) == [1, 4, 4]
    assert sorted(call.attributes["conch.chunk"] for call in calls) == [1, 2, 3]
    sent = {asked.metadata["traceparent"] for asked in traced.fake.asked}
    assert sent == {f"00-{trace}-{call.id}-01" for call in calls}


@pytest.mark.parametrize("flags", ["00", "02"])
async def test_a_trace_that_is_not_sampled_stays_out_of_triton_and_of_the_collector(traced: Traced, flags: str) -> None:
    trace = token_hex(16)
    traced.fake.forget()
    answer = await traced.gateway.post(
        "/v1/classify", {"model": "words", "inputs": ["a"]}, headers={"traceparent": f"00-{trace}-{token_hex(8)}-{flags}"}
    )
    assert answer.status_code == 200
    assert not {"traceparent", "tracestate"} & traced.fake.asked[0].metadata.keys()
    await traced.classify()  # whatever was exported before this is there now
    assert not traced.sink.of(trace)


TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
MALFORMED = {
    "nothing like it": CANARY,
    "capitals": f"00-{TRACE.upper()}-{SPAN}-01",
    "a trace of zeros": f"00-{'0' * 32}-{SPAN}-01",
    "a span of zeros": f"00-{TRACE}-{'0' * 16}-01",
    "the version that is none": f"ff-{TRACE}-{SPAN}-01",
    "more than version 00 has": f"00-{TRACE}-{SPAN}-01-more",
    "a short trace": f"00-{TRACE[:-1]}-{SPAN}-01",
    "no flags": f"00-{TRACE}-{SPAN}",
    "flags that are no number": f"00-{TRACE}-{SPAN}-zz",
    "a blank inside": f"00-{TRACE}-{SPAN} -01",
}


@pytest.mark.parametrize("traceparent", MALFORMED.values(), ids=MALFORMED)
async def test_a_malformed_traceparent_starts_a_new_trace_and_is_no_error(traced: Traced, traceparent: str) -> None:
    traced.fake.forget()
    spans = await traced.classify(traceparent, tracestate="dropped=1")
    server = spans["POST /v1/classify"]
    assert server.trace != TRACE
    assert not server.parent
    assert server.attributes["http.response.status_code"] == 200
    assert "tracestate" not in traced.fake.asked[0].metadata


async def test_a_later_version_is_read_by_what_is_known_of_it(traced: Traced) -> None:
    trace = token_hex(16)
    spans = await traced.classify(f"01-{trace}-{SPAN}-01-more")
    assert spans["POST /v1/classify"].parent == SPAN


async def test_two_traceparents_are_as_good_as_none(traced: Traced) -> None:
    body = b'{"model":"words","inputs":["a"]}'
    fields = (
        f"X-API-Key: {traced.gateway.tenants.keys['open']}",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        *(f"traceparent: 00-{TRACE}-{SPAN}-01",) * 2,
    )
    async with connected(traced.gateway.address) as line:
        await line.send(head("POST /v1/classify", *fields) + body)
        answer = await line.answer()
    spans = await traced.found(answer.headers["x-request-id"])
    assert (answer.status_code, spans["POST /v1/classify"].parent) == (200, "")


@pytest.mark.parametrize("state", [f"{CANARY}", "a=1," * 300, "=,=,=", "ü=1", "a=1,a=2"])
async def test_an_odd_tracestate_is_dropped_and_no_error(traced: Traced, state: str) -> None:
    trace = token_hex(16)
    spans = await traced.classify(f"00-{trace}-{SPAN}-01", tracestate=state.encode())  # type: ignore[arg-type]
    server = spans["POST /v1/classify"]
    assert (server.parent, server.attributes["http.response.status_code"]) == (SPAN, 200)


BAGGAGE = [f"key={CANARY}", f"{CANARY}", "a=1," * 3000, "\xfc=\xff", "=;=,,;"]


@pytest.mark.parametrize("baggage", BAGGAGE)
async def test_baggage_goes_nowhere(traced: Traced, baggage: str) -> None:
    traced.fake.forget()
    spans = await traced.classify(f"00-{token_hex(16)}-{SPAN}-01", baggage=baggage.encode("latin-1"))  # type: ignore[arg-type]
    assert spans["POST /v1/classify"].attributes["http.response.status_code"] == 200
    assert "baggage" not in traced.fake.asked[0].metadata


async def test_a_tracestate_may_be_spread_over_several_headers(traced: Traced) -> None:
    traced.fake.forget()
    body = b'{"model":"words","inputs":["a"]}'
    fields = (
        f"X-API-Key: {traced.gateway.tenants.keys['open']}",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        f"traceparent: 00-{token_hex(16)}-{SPAN}-01",
        "tracestate: a=1",
        "tracestate: b=2",
    )
    async with connected(traced.gateway.address) as line:
        await line.send(head("POST /v1/classify", *fields) + body)
        assert (await line.answer()).status_code == 200
    assert traced.fake.asked[0].metadata["tracestate"] == "a=1,b=2"


async def test_a_failure_marks_both_spans(traced: Traced) -> None:
    traced.fake.behaviours["words"] = aborting(grpc.StatusCode.INTERNAL, "hunter2")
    spans = await traced.classify()
    traced.fake.forget()
    assert (spans["POST /v1/classify"].status, spans["triton.infer"].status) == (ERROR, ERROR)
    assert spans["triton.infer"].attributes["conch.outcome"] == "failed"
    assert spans["POST /v1/classify"].attributes["conch.code"] == "upstream_error"
    assert "hunter2" not in str([*spans.values()])


async def test_a_path_of_nobody_s_gives_its_span_no_name_of_its_own(traced: Traced) -> None:
    trace = token_hex(16)
    await traced.gateway.client.get(f"/{CANARY}", headers={"traceparent": f"00-{trace}-{SPAN}-01"})
    await eventually(lambda: bool(traced.sink.of(trace)))
    assert list(traced.sink.of(trace)) == ["GET unmatched"]


async def test_a_real_triton_s_spans_are_children_of_ours(
    start_triton: Callable[..., Awaitable[Triton]], start_gateway: Start, redis: Redis, sink: Sink
) -> None:
    triton = await start_triton(ROOT / "tests" / "repository", traces=sink.url, extra=only("noop"))
    otel = {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": sink.url, "OTEL_BSP_SCHEDULE_DELAY": "100"}
    gateway = await start_gateway(TRITON=triton.grpc, REDIS_URL=redis.url, **otel)
    async with asyncio.timeout(60):
        spans = None
        while spans is None:  # this release's exporter now and then loses a batch
            spans = await spans_of_one_request(gateway, sink)
    assert spans["InferRequest"].parent == spans["triton.infer"].id
    assert spans["noop"].parent == spans["InferRequest"].id
    assert spans["noop-tokenizer"].parent == spans["noop-head"].parent == spans["noop"].id
    assert spans["triton.infer"].parent == spans["POST /v1/classify"].id
    assert CANARY not in str([*spans.values()])
    await assert_unsampled_leaves_nothing(gateway, sink)


async def assert_unsampled_leaves_nothing(gateway: RunningGateway, sink: Sink) -> None:
    trace = token_hex(16)
    for flags in ("00", "01"):
        headers = {"traceparent": f"00-{trace[:-2]}{flags}-{SPAN}-{flags}"}
        assert (await gateway.post("/v1/classify", {"model": "noop", "inputs": ["a"]}, headers=headers)).status_code == 200
    await eventually(lambda: "POST /v1/classify" in sink.of(f"{trace[:-2]}01"), seconds=7)
    assert not sink.of(f"{trace[:-2]}00"), "neither of ours nor of Triton's"


async def test_spans_leave_by_grpc_too_and_a_stranger_s_trace_may_be_kept_apart(
    start_gateway: Start, traced: Traced, redis: Redis, staged_routes: object
) -> None:
    with listening_for_grpc() as sink:
        gateway = await start_gateway(
            TRITON=traced.fake.address,
            REDIS_URL=redis.url,
            ROUTES_FILE=str(staged_routes),
            JOIN_TRACES="false",
            OTEL_EXPORTER_OTLP_ENDPOINT=sink.url,
            OTEL_EXPORTER_OTLP_PROTOCOL="grpc",
            OTEL_BSP_SCHEDULE_DELAY="100",
        )
        for flags in ("00", "01"):
            headers = {"traceparent": f"00-{TRACE}-{SPAN}-{flags}", "tracestate": "a=1"}
            assert (await gateway.post("/v1/classify", {"model": "words", "inputs": ["a"]}, headers=headers)).is_success
        await eventually(lambda: sum(span.name == "POST /v1/classify" for span in sink.spans) == 2)
        assert not sink.of(TRACE)
        servers = [span for span in sink.spans if span.name == "POST /v1/classify"]
        assert [span.parent for span in servers] == ["", ""]
        assert [span.links for span in servers] == [((TRACE, SPAN),)] * 2
        await gateway.peer.stop()


async def spans_of_one_request(gateway: RunningGateway, sink: Sink) -> dict[str, SeenSpan] | None:
    trace = token_hex(16)
    body = {"model": "noop", "inputs": [CANARY]}
    headers = {"traceparent": f"00-{trace}-{token_hex(8)}-01"}
    assert (await gateway.post("/v1/classify", body, headers=headers)).status_code == 200
    try:
        expected = {"triton.infer", "InferRequest", "noop", "noop-tokenizer", "noop-head"}
        await eventually(lambda: expected <= sink.of(trace).keys(), seconds=7)
    except TimeoutError:
        return None
    return sink.of(trace)
