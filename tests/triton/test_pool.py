"""Two Tritons as one: a second try where the first never ran, and none where it would only add load."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import grpc
import pytest
import pytest_asyncio
from tritonclient.grpc import service_pb2 as pb

from app.deadline import Deadline
from app.errors import (
    DeadlineExceeded,
    ModelUnavailable,
    Overloaded,
    Refusal,
    TooLarge,
    Unavailable,
    UpstreamError,
)
from app.triton.client import ChannelOptions, Endpoint
from app.triton.pool import Observed, Pool
from tests.fakes.triton import FakeTriton, aborting, never
from tests.gateway.stage import staged_models


@dataclass
class Pair:
    fakes: tuple[FakeTriton, FakeTriton]
    pool: Pool
    observed: list[Observed]
    alarms: list[str] = field(default_factory=list)

    @property
    def outcomes(self) -> list[str]:
        return [call.outcome for call in self.observed]

    def all_do(self, *behaviours: object) -> None:
        """The first call gets the first behaviour, wherever it goes."""
        rest = list(behaviours)

        async def behave(request: pb.ModelInferRequest, context: grpc.aio.ServicerContext) -> pb.ModelInferResponse:
            behaviour = rest.pop(0) if rest else self.fakes[0].answer
            return await behaviour(request, context)  # type: ignore[operator]

        for fake in self.fakes:
            fake.behaviours["words"] = behave

    async def infer(self, seconds: float = 5) -> pb.ModelInferResponse:
        request = pb.ModelInferRequest(model_name="words", raw_input_contents=[b"\1\0\0\0x"])
        request.inputs.add(name="TEXT", datatype="BYTES", shape=[1, 1])
        request.outputs.add(name="SCORES")
        return await self.pool.infer("words", request.SerializeToString(), Deadline.after(seconds))

    @property
    def asked(self) -> int:
        return sum(len(fake.asked) for fake in self.fakes)


@pytest_asyncio.fixture(loop_scope="session")
async def pair() -> AsyncIterator[Pair]:
    fakes = (FakeTriton(staged_models()), FakeTriton(staged_models()))
    for fake in fakes:
        await fake.start()
    endpoints = tuple(Endpoint(fake.address, ChannelOptions(message_bytes=100_000)) for fake in fakes)
    for endpoint in endpoints:
        endpoint.reachable, endpoint.serving = True, frozenset({"words"})
    observed: list[Observed] = []
    alarms: list[str] = []
    yield Pair(fakes, Pool(endpoints, observed.append, lambda: alarms.append("!")), observed, alarms)
    for endpoint in endpoints:
        await endpoint.close()
    for fake in fakes:
        await fake.stop()


ELSEWHERE = {
    "draining": (grpc.StatusCode.UNAVAILABLE, "Server is stopping", "stopping"),
    "not loaded": (grpc.StatusCode.NOT_FOUND, "Request for unknown model: 'words' is not found", "not_ready"),
    "cut off": (grpc.StatusCode.UNAVAILABLE, "Socket closed", "cut_off"),
    "dropped": (grpc.StatusCode.CANCELLED, "", "cancelled"),
    "a dead step": (grpc.StatusCode.INTERNAL, "Stub process 'x_0_0' is not healthy.", "step_dead"),
}


@pytest.mark.parametrize(("code", "message", "outcome"), ELSEWHERE.values(), ids=ELSEWHERE)
async def test_what_never_ran_is_tried_once_on_the_other_endpoint(
    pair: Pair, code: grpc.StatusCode, message: str, outcome: str
) -> None:
    pair.all_do(aborting(code, message))
    assert (await pair.infer()).model_name == "words"
    assert pair.outcomes == [outcome, "ok"]
    assert [len(fake.asked) for fake in pair.fakes] == [1, 1]


@pytest.mark.parametrize("message", ["Server is stopping", "Socket closed"])
async def test_there_is_no_third_try(pair: Pair, message: str) -> None:
    pair.all_do(*[aborting(grpc.StatusCode.UNAVAILABLE, message)] * 3)
    with pytest.raises(Unavailable):
        await pair.infer()
    assert pair.asked == 2
    assert len(pair.alarms) == 2


FINAL: dict[str, tuple[grpc.StatusCode, str, type[Refusal]]] = {
    "a full queue": (grpc.StatusCode.UNAVAILABLE, "Exceeds maximum queue size", Overloaded),
    "a wait in the queue": (grpc.StatusCode.UNAVAILABLE, "Request timeout expired", Overloaded),
    "a model's own failure": (grpc.StatusCode.INTERNAL, "boom", UpstreamError),
    "a refused request": (grpc.StatusCode.INVALID_ARGUMENT, "unexpected shape", UpstreamError),
}


@pytest.mark.parametrize(("code", "message", "refusal"), FINAL.values(), ids=FINAL)
async def test_what_would_only_add_load_is_not_tried_again(
    pair: Pair, code: grpc.StatusCode, message: str, refusal: type[Refusal]
) -> None:
    pair.all_do(aborting(code, message))
    with pytest.raises(refusal):
        await pair.infer()
    assert pair.asked == 1
    assert not pair.alarms


async def test_nothing_is_tried_after_the_deadline(pair: Pair) -> None:
    pair.all_do(never)
    with pytest.raises(DeadlineExceeded):
        await pair.infer(0.2)
    assert pair.asked == 1
    with pytest.raises(DeadlineExceeded):
        await pair.infer(0)
    assert pair.asked == 1


async def test_an_endpoint_that_is_gone_is_left_out_until_it_is_found_again(pair: Pair) -> None:
    await pair.fakes[0].stop()
    for _ in range(20):
        await pair.infer()
    assert len(pair.fakes[1].asked) == 20
    assert pair.outcomes.count("unreachable") + pair.outcomes.count("cut_off") <= 1


async def test_when_all_are_gone_it_is_said_without_a_call(pair: Pair) -> None:
    for fake in pair.fakes:
        await fake.stop()
    with pytest.raises(Unavailable):
        await pair.infer()
    calls = len(pair.observed)
    with pytest.raises(Unavailable):
        await pair.infer()
    assert len(pair.observed) == calls


async def test_a_model_that_nobody_serves_is_unavailable(pair: Pair) -> None:
    for endpoint in pair.pool.endpoints:
        endpoint.serving = frozenset()
    with pytest.raises(ModelUnavailable):
        await pair.infer()


async def test_the_endpoint_with_less_to_do_is_chosen(pair: Pair) -> None:
    pair.all_do(never)
    waiting = asyncio.create_task(pair.infer())
    while not pair.asked:
        await asyncio.sleep(0)
    busy = next(fake for fake in pair.fakes if fake.asked)
    for _ in range(5):
        await pair.infer()
    assert len(busy.asked) == 1
    waiting.cancel()
    await busy.cancelled.wait()


async def test_a_request_above_the_cap_is_too_large_and_an_answer_above_it_can_not_be_read(pair: Pair) -> None:
    with pytest.raises(TooLarge):
        await pair.pool.infer("words", b"\x0a\x05words" + b"\x3a\xc0\x9a\x0c" + b"x" * 200_000, Deadline.after(5))

    async def enormous(request: pb.ModelInferRequest, context: grpc.aio.ServicerContext) -> pb.ModelInferResponse:
        return pb.ModelInferResponse(raw_output_contents=[b"x" * 200_000])

    pair.all_do(enormous)
    with pytest.raises(UpstreamError):
        await pair.infer()
    assert not pair.alarms
