"""A real Triton's queues, through the gateway: who waits too long, who finds no place, who shares a batch with a bad text."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import pytest_asyncio
import tritonclient.grpc.aio as triton_client
from google.protobuf.json_format import MessageToJson
from tritonclient.grpc.model_config_pb2 import ModelConfig

from tests.gateway.problems import CANARY, assert_problem
from tests.gateway.process import RunningGateway
from tests.peers import Triton

Change = Callable[[ModelConfig], None]


@pytest_asyncio.fixture(loop_scope="session")
async def control(small_triton: Triton) -> AsyncIterator[Any]:
    client = triton_client.InferenceServerClient(small_triton.grpc)
    yield client
    await client.close()


@asynccontextmanager
async def configured(gateway: RunningGateway, control: Any, model: str, change: Change) -> AsyncIterator[None]:
    """Loaded again with another config, and afterwards with its own."""
    config = (await control.get_model_config(model)).config
    own = MessageToJson(config, preserving_proto_field_name=True)
    change(config)
    try:
        await load(gateway, control, model, MessageToJson(config, preserving_proto_field_name=True))
        yield
    finally:
        await load(gateway, control, model, own)


async def load(gateway: RunningGateway, control: Any, model: str, config: str) -> None:
    await control.load_model(model, config=config)
    async with asyncio.timeout(20):
        while (await gateway.classify("0", model=model)).status_code != 200:
            await asyncio.sleep(0.05)


async def outcomes(gateway: RunningGateway, model: str, outcome: str) -> float:
    return await gateway.count("conch_triton_calls_total", ensemble=model, outcome=outcome)


def narrow(config: ModelConfig) -> None:
    policy = config.dynamic_batching.default_queue_policy
    policy.max_queue_size, policy.default_timeout_microseconds = 1, 100_000


def shared_batches(config: ModelConfig) -> None:
    config.dynamic_batching.max_queue_delay_microseconds = 400_000


async def test_who_waits_too_long_in_the_queue_or_finds_no_place_there_is_refused_and_not_sent_elsewhere(
    gateway: RunningGateway, control: Any
) -> None:
    """24.10 looks at its queue twice a second while all instances are busy."""
    async with configured(gateway, control, "sleepy", narrow):
        before = [await outcomes(gateway, "sleepy", outcome) for outcome in ("queue_timeout", "queue_full")]
        retries = await gateway.count("conch_triton_retries_total")
        running = asyncio.create_task(gateway.classify("2", model="sleepy"))
        await asyncio.sleep(0.3)
        for refused in await asyncio.gather(*(gateway.classify("0", model="sleepy") for _ in range(3))):
            assert_problem(refused, 503, "overloaded")
            assert int(refused.headers["retry-after"]) >= 1
        assert not running.done(), "none of them waited for its own deadline"
        assert (await running).status_code == 200
        after = [await outcomes(gateway, "sleepy", outcome) for outcome in ("queue_timeout", "queue_full")]
        assert [now - then for now, then in zip(after, before, strict=True)] == [1, 2]
        assert await gateway.count("conch_triton_retries_total") == retries
    assert not (await gateway.status())["endpoints"][0]["out"]


POISONS = [
    # a bad text, what its caller gets, and what a caller gets whose text shares the batch
    ("item", 422, "invalid_input", 200),
    ("invalid", 502, "upstream_error", 200),
    ("unavailable", 503, "model_unavailable", 200),
    ("nan", 502, "bad_upstream_response", 200),
    ("raise", 502, "upstream_error", 502),
]


async def test_a_bad_text_in_a_shared_batch_is_its_caller_s_alone_unless_the_model_lets_an_exception_out(
    gateway: RunningGateway, control: Any
) -> None:
    async def pairs() -> int:
        [its] = (await control.get_inference_statistics("faulty")).model_stats
        return sum(batch.compute_infer.count for batch in its.batch_stats if batch.batch_size == 2)

    async with configured(gateway, control, "faulty", shared_batches):
        for poison, status, code, neighbours in POISONS:
            before = await pairs()
            bad, good = await asyncio.gather(
                gateway.classify(poison, model="faulty"), gateway.classify(CANARY, model="faulty", tenant="first")
            )
            async with asyncio.timeout(5):  # both were in one batch
                while await pairs() != before + 1:
                    await asyncio.sleep(0.02)
            assert_problem(bad, status, code)
            assert good.status_code == neighbours, poison
            if neighbours == 200:
                [best] = [label for label in good.json()["results"][0]["labels"] if label["label"] == "red"]
                assert best["score"] == pytest.approx(len(CANARY) / (len(CANARY) + 1), abs=1e-5)
    assert (await gateway.classify(CANARY, model="faulty")).status_code == 200
