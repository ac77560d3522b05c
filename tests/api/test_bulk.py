"""Bulk posts, from one end to the other: each line has an answer or an error of its own, whatever happens to its neighbours."""

import asyncio
import json
import socket
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from time import monotonic
from typing import Any

import grpc.aio
import httpx
import pytest
from pydantic import BaseModel
from tritonclient.grpc import service_pb2 as pb

from app.api import bulk_schemas
from app.triton.tensor import pack_texts
from tests.edge.raw import connected, head
from tests.fakes.triton import Behaviour, FakeTriton, aborting, never, put
from tests.gateway.problems import CANARY, assert_problem
from tests.gateway.process import RunningGateway

NDJSON = {"content-type": "application/x-ndjson"}
MODELS = {"classify": "words", "entities": "spans", "embeddings": "vectors", "analyze": "heads"}


def lines_of(*texts: str) -> bytes:
    return b"".join(json.dumps({"id": f"id-{at}", "text": text}).encode() + b"\n" for at, text in enumerate(texts))


async def post(
    gateway: RunningGateway,
    body: bytes,
    task: str = "classify",
    tenant: str = "open",
    headers: Mapping[str, str] = NDJSON,
    **query: Any,
) -> httpx.Response:
    parameters = {"model": MODELS.get(task, "words"), **query}
    fields = {**gateway.tenants.authorization(tenant), **headers}
    return await gateway.client.post(f"/v1/bulk/{task}", params=parameters, content=body, headers=fields)


def read(answer: httpx.Response) -> list[dict[str, Any]]:
    """The lines of a whole answer, which must be numbered in order."""
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "application/x-ndjson"
    assert answer.content.endswith(b"\n")
    lines = [json.loads(line) for line in answer.content.split(b"\n")[:-1]]
    assert [line["index"] for line in lines] == list(range(len(lines)))
    assert answer.headers["conch-lines"] == str(len(lines))
    return lines


def codes(lines: list[dict[str, Any]]) -> list[str]:
    return [line["error"]["code"] if "error" in line else "ok" for line in lines]


SHAPES: list[tuple[str, dict[str, Any], type[BaseModel]]] = [
    ("classify", {"top_k": 2}, bulk_schemas.BulkClassified),
    ("entities", {"include_text": "true", "offsets": "utf16"}, bulk_schemas.BulkFound),
    ("embeddings", {"encoding_format": "base64", "dimensions": 8}, bulk_schemas.BulkEmbedded),
    ("embeddings", {"truncate": "false"}, bulk_schemas.BulkEmbedded),
    ("analyze", {}, bulk_schemas.BulkAnalyzed),
    ("analyze", {"features": ["mood", "embedding"], "top_k": 1}, bulk_schemas.BulkAnalyzed),
]


@pytest.mark.parametrize(("task", "query", "shape"), SHAPES)
async def test_each_line_is_answered_in_its_place_as_the_schema_says(
    staged: RunningGateway, stage: FakeTriton, task: str, query: dict[str, Any], shape: type[BaseModel]
) -> None:
    lines = read(await post(staged, lines_of(*(CANARY * (at % 5 + 1) for at in range(150))), task, **query))
    assert [line["id"] for line in lines] == [f"id-{at}" for at in range(150)]
    for line in lines:
        parsed = shape.model_validate(line, strict=True)
        assert parsed.model_dump(exclude_unset=True) == line
        assert "result" in line
        assert "error" not in line


OPTIONS: list[tuple[str, str, dict[str, Any]]] = [
    ("classify", "words", {"top_k": 2}),
    ("entities", "spans", {"offsets": "byte", "include_text": True}),
    ("embeddings", "cut", {"dimensions": 2, "encoding_format": "base64"}),
    ("analyze", "heads", {"features": ["mood"], "top_k": 1, "truncate": False}),
]


@pytest.mark.parametrize(("task", "model", "options"), OPTIONS)
async def test_a_line_is_answered_as_a_request_of_its_own_would_be(
    staged: RunningGateway, stage: FakeTriton, task: str, model: str, options: dict[str, Any]
) -> None:
    field = "input" if task == "embeddings" else "inputs"
    request = {"model": model, field: [CANARY], **options}
    whole = (await staged.post(f"/v1/{task}", request)).json()
    [line] = read(await post(staged, lines_of(CANARY), task, **{"model": model, **options}))
    if task == "embeddings":
        assert line["result"]["embedding"] == whole["data"][0]["embedding"]
    else:
        assert line["result"] == whole["results"][0]
        assert line["version"] == whole["version"]


async def test_an_id_may_be_a_number_or_left_out_and_the_last_line_need_not_be_ended(
    staged: RunningGateway, stage: FakeTriton
) -> None:
    lines = read(await post(staged, b'{"id":7,"text":"a"}\r\n{"text":"b"}'))
    assert lines[0]["id"] == 7
    assert "id" not in lines[1]
    assert codes(lines) == ["ok", "ok"]


BROKEN: dict[str, tuple[bytes, str, str | None]] = {
    "nothing": (b"", "malformed_request", None),
    "blanks": (b"  ", "malformed_request", None),
    "no JSON": (CANARY.encode(), "malformed_request", None),
    "JSON cut short": (b'{"text":"' + CANARY.encode(), "malformed_request", None),
    "two documents": (b'{"text":"a"} {"text":"b"}', "malformed_request", None),
    "invalid UTF-8": (b'{"text":"\xff"}', "malformed_request", None),
    "a lone surrogate": (rb'{"text":"\ud800"}', "malformed_request", None),
    "a member twice": (b'{"text":"a","text":"b"}', "malformed_request", None),
    "NaN": (b'{"text":NaN}', "malformed_request", None),
    "a BOM": (b'\xef\xbb\xbf{"text":"a"}', "malformed_request", None),
    "10,000 lists": (b"[" * 10_000, "malformed_request", None),
    "a list": (b'["a"]', "invalid_input", ""),
    "no text": (b'{"id":"odd"}', "invalid_input", "/text"),
    "a number": (b'{"id":"odd","text":5}', "invalid_input", "/text"),
    "an unknown member": (b'{"id":"odd","text":"a","' + CANARY.encode() + b'":1}', "invalid_input", ""),
    "an empty text": (b'{"id":"odd","text":""}', "invalid_input", "/text"),
    "a long text": (b'{"id":"odd","text":"' + CANARY.encode() * 20 + b'"}', "invalid_input", "/text"),
    "a line that is longer still": (b'{"id":"odd","text":"' + CANARY.encode() * 800 + b'"}', "too_large", None),
    "a long id": (b'{"id":"' + CANARY.encode() * 20 + b'","text":"a"}', "invalid_input", "/id"),
    "an id that is a list": (b'{"id":["a"],"text":"a"}', "invalid_input", "/id"),
    "an id beyond 64 bits": (b'{"id":99999999999999999999,"text":"a"}', "invalid_input", "/id"),
}


@pytest.mark.parametrize("at", [0, 70, 139], ids=["first", "amid", "last"])
@pytest.mark.parametrize(("broken", "code", "pointer"), BROKEN.values(), ids=BROKEN)
async def test_a_broken_line_fails_alone_wherever_it_stands(
    staged: RunningGateway, stage: FakeTriton, broken: bytes, code: str, pointer: str | None, at: int
) -> None:
    good = lines_of(*["a"] * 139).split(b"\n")[:-1]
    answer = await post(staged, b"\n".join([*good[:at], broken, *good[at:]]) + b"\n")
    lines = read(answer)
    assert codes(lines) == ["ok"] * at + [code] + ["ok"] * (139 - at)
    assert CANARY not in answer.text
    error = bulk_schemas.BulkError.model_validate(lines[at]["error"])
    assert error.detail.endswith(".")
    assert lines[at].get("id") == ("odd" if b'"odd"' in broken and code == "invalid_input" else None)
    if pointer is not None:
        assert pointer in [flaw.pointer for flaw in error.errors or ()]


def spoilt(stage: FakeTriton, behave: Behaviour) -> Behaviour:
    """A model that goes wrong wherever a certain text is in its batch."""

    async def spoil(request: pb.ModelInferRequest, context: grpc.aio.ServicerContext) -> pb.ModelInferResponse:
        texts = stage.asked[-1].texts
        return await behave(request, context) if CANARY.encode() in texts else stage.well_formed(request)

    return spoil


def refusing(stage: FakeTriton) -> Behaviour:
    async def refuse(request: pb.ModelInferRequest, context: grpc.aio.ServicerContext) -> pb.ModelInferResponse:
        response = stage.well_formed(request)
        texts = stage.asked[-1].texts
        errors = [b"hunter2" if text == CANARY.encode() else b"" for text in texts]
        put(response, "ERROR", "BYTES", (len(texts), 1), pack_texts(errors))
        put(response, "TRUNCATED", "BOOL", (len(texts), 1), bytes(text == b"cut" for text in texts))
        return response

    return refuse


def misshapen(stage: FakeTriton) -> Behaviour:
    async def misshape(request: pb.ModelInferRequest, context: grpc.aio.ServicerContext) -> pb.ModelInferResponse:
        response = stage.well_formed(request)
        response.raw_output_contents[0] += b"x"
        return response

    return misshape


SPOILT: list[tuple[str, Callable[[FakeTriton], Behaviour], str]] = [
    ("refused by the model", refusing, "invalid_input"),
    ("fails at Triton", lambda stage: spoilt(stage, aborting(grpc.StatusCode.INTERNAL, "hunter2")), "upstream_error"),
    ("no good answer", lambda stage: spoilt(stage, misshapen(stage)), "bad_upstream_response"),
]


@pytest.mark.parametrize("at", [0, 33, 149], ids=["first", "amid", "last"])
@pytest.mark.parametrize(("behave", "code"), [row[1:] for row in SPOILT], ids=[row[0] for row in SPOILT])
async def test_a_text_that_the_model_can_t_bear_fails_alone(
    staged: RunningGateway, stage: FakeTriton, behave: Callable[[FakeTriton], Behaviour], code: str, at: int
) -> None:
    stage.behaviours["words"] = behave(stage)
    texts = ["a"] * 149
    answer = await post(staged, lines_of(*texts[:at], CANARY, *texts[at:]))
    assert codes(read(answer)) == ["ok"] * at + [code] + ["ok"] * (149 - at)
    assert "hunter2" not in answer.text
    assert len(stage.asked) < 30


async def test_a_text_that_would_be_cut_is_refused_alone_where_it_may_not_be(staged: RunningGateway, stage: FakeTriton) -> None:
    stage.behaviours["words"] = refusing(stage)
    lines = read(await post(staged, lines_of("a", "cut", "b"), truncate="false"))
    assert codes(lines) == ["ok", "invalid_input", "ok"]
    assert lines[1]["error"]["errors"][0]["code"] == "too_long_for_model"
    assert codes(read(await post(staged, lines_of("a", "cut", "b")))) == ["ok"] * 3


async def test_a_model_that_fails_on_everything_fails_each_line_and_is_not_asked_for_each(
    staged: RunningGateway, stage: FakeTriton
) -> None:
    stage.behaviours["words"] = aborting(grpc.StatusCode.INTERNAL, "hunter2")
    lines = read(await post(staged, lines_of(*["a"] * 1000)))
    assert set(codes(lines)) == {"upstream_error"}
    assert len(stage.asked) < 600


@pytest.mark.parametrize("fault", ["raise", "nan", "item"])
async def test_a_text_that_a_real_model_can_t_bear_fails_alone(gateway: RunningGateway, fault: str) -> None:
    lines = read(await post(gateway, lines_of(*["fine, and long"] * 20, fault, *["fine, and long"] * 20), model="faulty"))
    expected = {"raise": "upstream_error", "nan": "bad_upstream_response", "item": "invalid_input"}[fault]
    assert codes(lines) == ["ok"] * 20 + [expected] + ["ok"] * 20


async def test_texts_of_like_length_travel_together_to_a_real_model(gateway: RunningGateway) -> None:
    lines = read(await post(gateway, lines_of(*("a" * (at % 50 + 1) for at in range(5000))), model="noop"))
    assert codes(lines) == ["ok"] * 5000


async def test_line_breaks_of_unicode_in_a_text_break_no_line_of_the_answer(staged: RunningGateway, stage: FakeTriton) -> None:
    odd = "a\x85\u2028\u2029"
    answer = await post(staged, json.dumps({"id": odd, "text": "b"}, ensure_ascii=False).encode())
    [line] = answer.text.splitlines()
    assert json.loads(line)["id"] == odd


REFUSED: list[tuple[str, dict[str, Any], int, str]] = [
    ("an unknown model", {"model": CANARY}, 404, "unknown_model"),
    ("a model of another task", {"model": "vectors"}, 422, "invalid_input"),
    ("no model", {"model": ""}, 422, "invalid_input"),
    ("an unknown option", {CANARY: "1"}, 422, "invalid_input"),
    ("an option of another task", {"offsets": "byte"}, 422, "invalid_input"),
    ("an option outside its bounds", {"top_k": 0}, 422, "invalid_input"),
    ("an option twice", {"top_k": ["1", "2"]}, 400, "malformed_request"),
    ("a head that is not there", {"task": "analyze", "features": [CANARY]}, 422, "invalid_input"),
    ("vectors of another length", {"task": "embeddings", "dimensions": 7}, 422, "invalid_input"),
    ("an unknown task", {"task": "bake"}, 404, "not_found"),
    ("JSON", {"headers": {"content-type": "application/json"}}, 415, "unsupported_media_type"),
    ("no lines", {"body": b""}, 422, "invalid_input"),
    ("too many lines", {"body": b"\n" * 10_001}, 422, "invalid_input"),
    ("too many bytes", {"body": b" " * 5_000_000}, 413, "too_large"),
    ("a bad timeout", {"timeout_ms": -1}, 422, "invalid_input"),
    ("a bad timeout in the header", {"headers": {**NDJSON, "x-request-timeout-ms": "soon"}}, 400, "malformed_request"),
]


@pytest.mark.parametrize(("given", "status", "code"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
async def test_what_is_wrong_with_the_whole_post_is_said_before_anything_is_asked(
    staged: RunningGateway, stage: FakeTriton, given: dict[str, Any], status: int, code: str
) -> None:
    assert_problem(await post(staged, **{"body": lines_of("a"), **given}), status, code)
    assert not stage.asked


async def test_lines_come_as_they_are_ready(staged: RunningGateway, stage: FakeTriton) -> None:
    release = asyncio.Event()

    async def hold(request: pb.ModelInferRequest, context: grpc.aio.ServicerContext) -> pb.ModelInferResponse:
        if b"held" in stage.asked[-1].texts:
            await release.wait()
        return stage.well_formed(request)

    stage.behaviours["words"] = hold
    body = lines_of(*["a"] * 100, "held")
    headers = {**staged.tenants.authorization("open"), **NDJSON}
    async with staged.client.stream("POST", "/v1/bulk/classify?model=words", content=body, headers=headers) as answer:
        pieces = answer.aiter_bytes()
        first = await anext(pieces)
        assert first.startswith(b'{"index":0,"id":"id-0"')
        release.set()
        rest = b"".join([piece async for piece in pieces])
    assert (first + rest).count(b"\n") == 101


async def test_who_uploads_everything_before_reading_anything_gets_everything(
    staged: RunningGateway, stage: FakeTriton
) -> None:
    body = lines_of(*["a" * 200] * 10_000)
    fields = (f"X-API-Key: {staged.tenants.keys['open']}", f"Content-Type: {NDJSON['content-type']}")
    request = head("POST /v1/bulk/embeddings?model=vectors", *fields, f"Content-Length: {len(body)}", "Connection: close")

    def upload_and_read() -> bytes:
        with socket.create_connection((staged.address.host, staged.address.port), timeout=30) as line:
            line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            line.sendall(request + body)
            line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2**20)
            return b"".join(iter(lambda: line.recv(65536), b""))

    answer = await asyncio.to_thread(upload_and_read)
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    assert answer.count(b'"result"') == 10_000
    assert answer.endswith(b"\r\n0\r\n\r\n")


@asynccontextmanager
async def deaf(gateway: RunningGateway, timeout_ms: int) -> AsyncIterator[None]:
    """Somebody who posts 10,000 lines, and reads nothing of the answer, of which there is more than sockets hold."""
    body = b'{"id":"%s","text":"a"}\n' % (b"i" * 256) * 10_000
    fields = (f"X-API-Key: {gateway.tenants.keys['open']}", f"Content-Type: {NDJSON['content-type']}")
    path = f"POST /v1/bulk/analyze?model=heads&timeout_ms={timeout_ms}"
    with socket.socket() as line:
        line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        line.connect((gateway.address.host, gateway.address.port))
        await asyncio.to_thread(line.sendall, head(path, *fields, f"Content-Length: {len(body)}") + body)
        yield


async def test_who_stops_reading_stops_the_work(staged: RunningGateway, stage: FakeTriton) -> None:
    async with deaf(staged, 60_000), asyncio.timeout(30):
        await stage.arrived.wait()
        asked = 0
        while len(stage.asked) > asked:
            asked = len(stage.asked)
            await asyncio.sleep(1)
        assert await staged.count("conch_requests_in_flight") == 1
    assert asked < 10_000 / 64, "what nobody takes is not computed"


async def test_who_stops_reading_is_cut_off_after_the_deadline(staged: RunningGateway, stage: FakeTriton) -> None:
    before = await staged.count("conch_requests_total", code="deadline_exceeded", route="/v1/bulk/analyze")
    async with deaf(staged, 1000), asyncio.timeout(15):
        while await staged.count("conch_requests_total", code="deadline_exceeded", route="/v1/bulk/analyze") == before:
            await asyncio.sleep(0.05)
    assert '"route":"/v1/bulk/analyze","status":200,"code":"deadline_exceeded"' in await staged.logged()


async def test_when_the_caller_leaves_everything_is_cancelled_and_given_back(staged: RunningGateway, stage: FakeTriton) -> None:
    stage.behaviours["brief"] = never
    before = await staged.count("conch_requests_total", status="499", route="/v1/bulk/classify")
    body = lines_of(*["a"] * 40)
    fields = (f"X-API-Key: {staged.tenants.keys['bulk-single']}", f"Content-Type: {NDJSON['content-type']}")
    async with connected(staged.address) as line:
        await line.send(head("POST /v1/bulk/classify?model=brief", *fields, f"Content-Length: {len(body)}") + body)
        await stage.arrived.wait()
    async with asyncio.timeout(2):
        await stage.cancelled.wait()
    async with asyncio.timeout(5):
        while await staged.count("conch_requests_total", status="499", route="/v1/bulk/classify") == before:
            await asyncio.sleep(0.02)
    assert len(stage.asked) == 1
    stage.behaviours.clear()
    # `bulk-single` has one slot in flight, and `brief` one berth.
    assert (await staged.classify(CANARY, model="brief", tenant="bulk-single")).status_code == 200


async def test_at_the_limit_of_requests_it_waits_and_every_line_is_answered(staged: RunningGateway, stage: FakeTriton) -> None:
    while (await staged.classify("a", model="words", tenant="bulk-paced")).status_code == 200:
        pass  # so that the gateway knows that it would be refused
    started = monotonic()
    answer = await post(staged, lines_of(*["a"] * 16), tenant="bulk-paced", model="brief")
    assert codes(read(answer)) == ["ok"] * 16
    assert 0.5 <= monotonic() - started < 4
    assert "ratelimit" in answer.headers


async def test_a_batch_beyond_the_burst_of_characters_is_made_smaller(staged: RunningGateway, stage: FakeTriton) -> None:
    lines = read(await post(staged, lines_of("a" * 61, *["a" * 10] * 11), tenant="bulk-terse"))
    assert codes(lines) == ["invalid_input"] + ["ok"] * 11
    assert "Waiting can't help" in lines[0]["error"]["detail"]


async def test_in_flight_counts_each_batch_so_that_they_take_turns_without_a_pause(
    staged: RunningGateway, stage: FakeTriton
) -> None:
    most = now = 0

    async def count(request: pb.ModelInferRequest, context: grpc.aio.ServicerContext) -> pb.ModelInferResponse:
        nonlocal most, now
        now += 1
        most = max(most, now)
        await asyncio.sleep(0.01)
        now -= 1
        return stage.well_formed(request)

    stage.behaviours["words"] = count
    started = monotonic()
    assert codes(read(await post(staged, lines_of(*["a"] * 1280), tenant="bulk-single"))) == ["ok"] * 1280
    assert most == 1
    assert monotonic() - started < 5, "twenty batches, and no second of waiting for each"


async def test_for_a_slot_that_another_request_holds_it_waits_calmly(staged: RunningGateway, stage: FakeTriton) -> None:
    stage.behaviours["words"] = never
    other = asyncio.create_task(staged.classify("a", model="words", tenant="bulk-single", timeout_ms=1500))
    await stage.arrived.wait()
    before = await staged.count("conch_redis_seconds_count")
    answer = await post(staged, lines_of(*["b"] * 40), tenant="bulk-single", model="brief", timeout_ms=9000)
    assert codes(read(answer)) == ["ok"] * 40
    assert (await other).status_code == 504
    assert await staged.count("conch_redis_seconds_count") - before < 40, "ten batches, and each is asked for a few times"


async def test_a_line_that_the_limit_lets_pass_too_late_says_so_at_once(staged: RunningGateway, stage: FakeTriton) -> None:
    started = monotonic()
    lines = read(await post(staged, lines_of(*["a"] * 10), tenant="bulk-once", model="brief", timeout_ms=60_000))
    assert Counter(codes(lines)) == {"ok": 4, "deadline_exceeded": 6}
    late = [line["error"] for line in lines if "error" in line]
    assert all(90 <= error["retry_after"] <= 100 for error in late)
    assert monotonic() - started < 10


async def test_a_line_beyond_the_day_s_quota_says_so_at_once(staged: RunningGateway, stage: FakeTriton) -> None:
    lines = read(await post(staged, lines_of(*["a" * 5] * 8), tenant="bulk-frugal", model="brief"))
    assert Counter(codes(lines)) == {"ok": 4, "quota_exhausted": 4}
    assert all(line["error"]["retry_after"] <= 86_400 for line in lines if "error" in line)


async def test_a_full_queue_is_waited_for(staged: RunningGateway, stage: FakeTriton) -> None:
    full = aborting(grpc.StatusCode.UNAVAILABLE, "[request id: x] Exceeds maximum queue size")
    refusals = 2

    async def sometimes(request: pb.ModelInferRequest, context: grpc.aio.ServicerContext) -> pb.ModelInferResponse:
        nonlocal refusals
        refusals -= 1
        return await full(request, context) if refusals >= 0 else stage.well_formed(request)

    stage.behaviours["words"] = sometimes
    assert codes(read(await post(staged, lines_of(*["a"] * 130)))) == ["ok"] * 130


async def test_the_deadline_ends_it_and_what_is_not_answered_says_so(staged: RunningGateway, stage: FakeTriton) -> None:
    async def slow(request: pb.ModelInferRequest, context: grpc.aio.ServicerContext) -> pb.ModelInferResponse:
        if b"slow" in stage.asked[-1].texts:
            await asyncio.sleep(60)
        return stage.well_formed(request)

    stage.behaviours["words"] = slow
    asked = monotonic()
    lines = read(await post(staged, lines_of(*["slow"] * 100, *["a"] * 64), timeout_ms=500))
    assert codes(lines) == ["deadline_exceeded"] * 100 + ["ok"] * 64
    assert 0.4 < monotonic() - asked < 3


async def test_there_are_so_many_places_for_posts_and_half_of_them_for_one_tenant(
    staged: RunningGateway, stage: FakeTriton
) -> None:
    stage.behaviours["words"] = never
    running: list[asyncio.Task[httpx.Response]] = []
    async with asyncio.timeout(20):
        for tenant in ("open", "roomy"):
            running += [asyncio.create_task(post(staged, lines_of("a"), tenant=tenant, timeout_ms=3000)) for _ in range(8)]
            while sum(asked.texts == [b"a"] for asked in stage.asked) < len(running):
                await asyncio.sleep(0.02)
            refused = await post(staged, lines_of("a"), tenant=tenant)
            assert_problem(refused, 503, "overloaded")
            assert refused.headers["retry-after"] == "1"
        assert_problem(await post(staged, lines_of("a"), tenant="exact"), 503, "overloaded")
        for answer in await asyncio.gather(*running):
            assert codes(read(answer)) == ["deadline_exceeded"]
    stage.behaviours.clear()
    assert codes(read(await post(staged, lines_of("a")))) == ["ok"]


async def test_a_post_leaves_one_line_in_the_log_and_is_counted(staged: RunningGateway, stage: FakeTriton) -> None:
    counted = {
        "conch_inputs_total": 129,
        "conch_characters_total": 258,
        "conch_bulk_lines_total": 130,
        "conch_requests_total": None,
    }
    before = {name: await staged.count(name, model="words") for name in counted}
    body = lines_of(*["ab"] * 129) + CANARY.encode()
    answer = await post(staged, body, headers={**NDJSON, "x-request-id": "bulk-in-the-log"})
    assert read(answer)
    assert answer.headers["x-request-id"] == "bulk-in-the-log"
    for name, more in counted.items():
        if more is not None:
            assert await staged.count(name, model="words") == before[name] + more
    [line] = [json.loads(line) for line in (await staged.logged()).splitlines() if "bulk-in-the-log" in line]
    assert (line["route"], line["status"], line["code"], line["inputs"]) == ("/v1/bulk/classify", 200, "ok", 129)
    assert line["lines"] == {"ok": 129, "malformed_request": 1}
    assert line["chunks"] == 3
