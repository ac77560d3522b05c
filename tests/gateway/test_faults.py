"""Every way in which a model can go wrong: told apart, and none of its words told on."""

import math
from array import array
from collections.abc import Callable

import grpc
import pytest
from tritonclient.grpc import service_pb2 as pb

from tests.fakes.triton import FakeTriton, aborting, bent, put
from tests.gateway.problems import CANARY, assert_problem
from tests.gateway.process import RunningGateway

SECRETS = ("hunter2", "secret", "model.py", "Traceback", "RuntimeError")

REAL = [
    ("raise", 502, "upstream_error"),
    ("invalid", 502, "upstream_error"),
    ("internal", 502, "upstream_error"),
    ("unavailable", 503, "model_unavailable"),
    ("nan", 502, "bad_upstream_response"),
    ("inf", 502, "bad_upstream_response"),
    ("empty", 502, "bad_upstream_response"),
    ("short", 502, "bad_upstream_response"),
    ("wide", 502, "bad_upstream_response"),
    ("missing", 502, "bad_upstream_response"),
    ("type", 502, "bad_upstream_response"),
]


@pytest.mark.parametrize(("fault", "status", "code"), REAL, ids=[row[0] for row in REAL])
async def test_a_real_model_that_goes_wrong_is_answered_without_its_words(
    gateway: RunningGateway, fault: str, status: int, code: str
) -> None:
    answer = await gateway.classify(fault, CANARY, model="faulty")
    assert_problem(answer, status, code)
    assert not [secret for secret in SECRETS if secret in answer.text]
    for model in ("faulty", "noop"):
        assert (await gateway.classify(CANARY, model=model)).status_code == 200, "a fault is its caller's alone"


async def test_an_item_that_a_real_model_refuses_is_pointed_to(gateway: RunningGateway) -> None:
    answer = await gateway.classify("fine", "item", "fine", "item", model="faulty")
    assert_problem(answer, 422, "invalid_input", "/inputs/1", "/inputs/3")
    assert "too_odd" not in answer.text


def scores(*values: float, dtype: str = "FP32", shape: tuple[int, ...] = (1, 3)) -> Callable[[pb.ModelInferResponse], None]:
    raw = array("d" if dtype == "FP64" else "f", values).tobytes()
    return lambda response: put(response, "SCORES", dtype, shape, raw)


def remark(name: str, dtype: str, raw: bytes, shape: tuple[int, ...] = (1, 1)) -> Callable[[pb.ModelInferResponse], None]:
    return lambda response: put(response, name, dtype, shape, raw)


def dropped(response: pb.ModelInferResponse) -> None:
    response.raw_output_contents.pop()


def without_outputs(response: pb.ModelInferResponse) -> None:
    response.ClearField("outputs")
    response.ClearField("raw_output_contents")


def typed_contents(response: pb.ModelInferResponse) -> None:
    response.ClearField("raw_output_contents")
    response.outputs[0].contents.fp32_contents.extend([0, 0, 0])


BENT = {
    "NaN": scores(0, math.nan, 0),
    "Infinity": scores(0, 0, math.inf),
    "both infinities": scores(math.inf, -math.inf, 0),
    "no bytes": scores(),
    "fewer bytes": scores(0, 0),
    "more bytes": scores(0, 0, 0, 0),
    "half a number": lambda response: put(response, "SCORES", "FP32", (1, 3), b"\0" * 11),
    "another datatype": scores(0, 0, 0, dtype="FP64"),
    "another datatype of the same size": lambda response: put(response, "SCORES", "INT32", (1, 3), b"\0" * 12),
    "more rows": scores(*[0] * 6, shape=(2, 3)),
    "no rows": scores(shape=(0, 3)),
    "more columns": scores(*[0] * 4, shape=(1, 4)),
    "no batch dimension": scores(0, 0, 0, shape=(3,)),
    "one dimension more": scores(0, 0, 0, shape=(1, 1, 3)),
    "a shape below 0": scores(0, 0, 0, shape=(-1, -3)),
    "a shape beyond memory": scores(0, 0, 0, shape=(1, 2**62)),
    "one content less": dropped,
    "nothing": without_outputs,
    "contents that are not raw": typed_contents,
    "a remark of another datatype": remark("TOKENS", "INT64", b"\0" * 8),
    "a remark of no rows": remark("TRUNCATED", "BOOL", b"", (0, 1)),
    "a text that says to be longer": remark("ERROR", "BYTES", b"\xff\xff\xff\x7fabc"),
    "a text cut within its length": remark("ERROR", "BYTES", b"\x01\x00"),
    "bytes after the last text": remark("ERROR", "BYTES", b"\0\0\0\0hunter2"),
}


@pytest.mark.parametrize("bend", BENT.values(), ids=BENT)
async def test_an_answer_that_can_not_be_trusted_is_not_passed_on(
    staged: RunningGateway, stage: FakeTriton, bend: Callable[[pb.ModelInferResponse], None]
) -> None:
    stage.behaviours["words"] = bent(stage, bend)
    assert_problem(await staged.classify(CANARY, model="words"), 502, "bad_upstream_response")
    stage.behaviours.clear()
    assert (await staged.classify(CANARY, model="words")).status_code == 200, "the next one is well again"


SPANS = {
    "a span that ends before it starts": ((3, 2, 0), 1),
    "a span of nothing": ((2, 2, 0), 1),
    "a span beyond the text": ((0, 99, 0), 1),
    "a label that there is not": ((0, 1, 2), 1),
    "a label below 0": ((0, 1, -1), 1),
    "more scores than spans": ((0, 1, 0), 2),
    "fewer scores than spans": ((0, 1, 0, 1, 2, 0), 1),
}


@pytest.mark.parametrize(("spans", "count"), SPANS.values(), ids=SPANS)
async def test_spans_that_the_text_does_not_have_are_not_passed_on(
    staged: RunningGateway, stage: FakeTriton, spans: tuple[int, ...], count: int
) -> None:
    def bend(response: pb.ModelInferResponse) -> None:
        put(response, "SPANS", "INT32", (1, len(spans) // 3, 3), array("i", spans).tobytes())
        put(response, "SPAN_SCORES", "FP32", (1, count), array("f", [0.5] * count).tobytes())

    stage.behaviours["spans"] = bent(stage, bend)
    counted = {"name": "conch_triton_calls_total", "ensemble": "spans", "outcome": "bad_upstream_response"}
    before = await staged.count(**counted)
    answer = await staged.post("/v1/entities", {"model": "spans", "inputs": ["four"]})
    assert_problem(answer, 502, "bad_upstream_response")
    assert await staged.count(**counted) == before + 1, "it counts against the endpoint"


TRUNCATED = remark("TRUNCATED", "BOOL", b"\0\1\0", (3, 1))


@pytest.mark.parametrize(("truncate", "status"), [(True, 200), (False, 422)])
async def test_a_text_that_was_cut_is_refused_only_where_it_must_not_be(
    staged: RunningGateway, stage: FakeTriton, truncate: bool, status: int
) -> None:
    stage.behaviours["words"] = bent(stage, TRUNCATED)
    answer = await staged.classify("a", CANARY, "c", model="words", truncate=truncate)
    assert answer.status_code == status
    if truncate:
        assert [result["truncated"] for result in answer.json()["results"]] == [False, True, False]
    else:
        assert_problem(answer, 422, "invalid_input", "/inputs/1")


async def test_a_model_that_does_not_tell_what_it_cuts_can_not_be_asked_not_to(gateway: RunningGateway) -> None:
    answer = await gateway.classify(CANARY, model="questions", truncate=False)
    assert_problem(answer, 422, "invalid_input", "/truncate")


async def test_the_only_text_of_an_embedding_is_pointed_to_without_an_index(staged: RunningGateway, stage: FakeTriton) -> None:
    stage.behaviours["vectors"] = bent(stage, remark("ERROR", "BYTES", b"\x03\0\0\0odd"))
    answer = await staged.post("/v1/embeddings", {"model": "vectors", "input": CANARY})
    assert_problem(answer, 422, "invalid_input", "/input")
    assert answer.json()["error"]["type"] == "invalid_request_error"


@pytest.mark.parametrize("message", ["hunter2 at /srv/model.py", "", "ünïcode hunter2 " * 100])
async def test_the_words_of_triton_go_no_further(staged: RunningGateway, stage: FakeTriton, message: str) -> None:
    for code in (grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN, grpc.StatusCode.INVALID_ARGUMENT):
        stage.behaviours["words"] = aborting(code, message)
        answer = await staged.classify(CANARY, model="words")
        assert_problem(answer, 502, "upstream_error")
        assert "hunter2" not in answer.text
