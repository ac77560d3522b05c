"""Requests larger than the model's batch: split, run side by side, and put together in order."""

import asyncio
import random
from array import array

import grpc
import grpc.aio
import pytest
from tritonclient.grpc import service_pb2 as pb

from app.calls.texts import _PART_CHARACTERS, _parted
from tests.fakes.triton import FakeTriton, aborting, put
from tests.gateway.problems import CANARY, assert_problem
from tests.gateway.process import RunningGateway

TEXTS = [CANARY[: at % 17 + 1] * (at % 5 + 1) + "é" * (at % 3) for at in range(256)]
random.Random(7).shuffle(TEXTS)


async def test_256_mixed_texts_are_answered_in_order_like_single_ones(gateway: RunningGateway) -> None:
    many = (await gateway.classify(*TEXTS)).json()
    assert [result["tokens"] for result in many["results"]] == [len(text.encode()) for text in TEXTS]
    for at in range(0, 256, 16):
        [single] = (await gateway.classify(TEXTS[at])).json()["results"]
        assert many["results"][at] == single
    assert many["usage"]["inputs"] == 256
    assert many["usage"]["tokens"] == sum(len(text.encode()) for text in TEXTS)


async def test_256_vectors_are_in_order_too(gateway: RunningGateway) -> None:
    many = (await gateway.post("/v1/embeddings", {"model": "echo", "input": TEXTS})).json()["data"]
    assert [vector["index"] for vector in many] == list(range(256))
    for at in range(0, 256, 16):
        single = (await gateway.post("/v1/embeddings", {"model": "echo", "input": TEXTS[at]})).json()["data"][0]
        assert many[at]["embedding"] == single["embedding"]


@pytest.mark.parametrize("count", [1, 3, 4, 5, 8, 9, 100])
async def test_no_part_is_larger_than_the_batch_and_no_text_is_lost(
    staged: RunningGateway, stage: FakeTriton, count: int
) -> None:
    texts = [f"{at:03}" + "x" * (at % 7) for at in range(count)]
    answer = await staged.classify(*texts, model="brief")
    assert answer.status_code == 200
    assert sorted(text.decode() for asked in stage.asked for text in asked.texts) == texts
    assert len(stage.asked) == -(-count // 4)
    assert all(len(asked.texts) <= 4 for asked in stage.asked)


async def test_texts_of_like_length_travel_together(staged: RunningGateway, stage: FakeTriton) -> None:
    await staged.classify(*["x" * (at % 4 + 1) for at in range(16)], model="brief")
    assert sorted(sorted(map(len, asked.texts)) for asked in stage.asked) == [[1] * 4, [2] * 4, [3] * 4, [4] * 4]


async def test_parts_answered_out_of_order_are_put_together_in_order(staged: RunningGateway, stage: FakeTriton) -> None:
    async def measured(request: pb.ModelInferRequest, context: grpc.aio.ServicerContext) -> pb.ModelInferResponse:
        response = stage.well_formed(request)
        texts = stage.asked[-1].texts
        put(response, "TOKENS", "INT32", (len(texts), 1), array("i", map(len, texts)).tobytes())
        return response

    stage.behaviours["brief"] = measured
    texts = ["x" * (at * 37 % 101 + 1) for at in range(50)]
    answer = await staged.classify(*texts, model="brief")
    assert [result["tokens"] for result in answer.json()["results"]] == [len(text) for text in texts]


async def test_one_part_that_fails_fails_the_call(staged: RunningGateway, stage: FakeTriton) -> None:
    async def sometimes(request: pb.ModelInferRequest, context: grpc.aio.ServicerContext) -> pb.ModelInferResponse:
        if len(stage.asked) == 3:
            await aborting(grpc.StatusCode.INTERNAL, "hunter2")(request, context)
        return stage.well_formed(request)

    stage.behaviours["brief"] = sometimes
    assert_problem(await staged.classify(*[CANARY] * 40, model="brief"), 502, "upstream_error")
    stage.behaviours.clear()
    assert (await staged.classify(CANARY, model="brief")).status_code == 200, "the one berth is free again"


async def test_a_bad_item_in_a_later_part_is_pointed_to_by_its_own_place(gateway: RunningGateway) -> None:
    texts = ["fine"] * 200
    texts[150] = "item"
    assert_problem(await gateway.classify(*texts, model="faulty"), 422, "invalid_input", "/inputs/150")


async def test_many_callers_at_once_are_answered_each_with_their_own(gateway: RunningGateway) -> None:
    async def ask(at: int) -> bool:
        texts = [f"{CANARY} {at} {part}" * (at % 5 + 1) for part in range(at % 3 + 1)]
        answer = await gateway.classify(*texts, tenant=("open", "roomy", "first")[at % 3])
        return [result["tokens"] for result in answer.json()["results"]] == [len(text) for text in texts]

    assert all(await asyncio.gather(*map(ask, range(200))))


@pytest.mark.parametrize("most", [1, 4, 64])
def test_parts_are_within_their_bounds_and_hold_each_text_once(most: int) -> None:
    texts = ["x" * (at * 7_919 % 100_000) for at in range(150)] + ["y" * 300_000, ""]
    parts = list(_parted(texts, most))
    assert sorted(at for part in parts for at in part) == list(range(len(texts)))
    for part in parts:
        assert len(part) <= most
        assert len(part) == 1 or sum(len(texts[at]) for at in part) <= _PART_CHARACTERS
        assert [len(texts[at]) for at in part] == sorted(len(texts[at]) for at in part)
