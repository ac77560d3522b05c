"""Two Tritons as one: a second try where the first never ran, and none where it would only add load."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import cast

import grpc
import pytest
import pytest_asyncio
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from tritonclient.grpc import service_pb2 as pb

from app.deadline import Deadline
from app.errors import (
    BadUpstreamResponse,
    DeadlineExceeded,
    ModelUnavailable,
    Overloaded,
    Refusal,
    TooLarge,
    Unavailable,
    UpstreamError,
)
from app.telemetry.span import Kind, Span
from app.telemetry.tracing import Tracing
from app.triton.budget import RetryBudget
from app.triton.client import ChannelOptions, Endpoint
from app.triton.discovery import Roster
from app.triton.ensemble import Ensemble
from app.triton.pool import Batch, Observed, Pool
from app.triton.query import Texts, probing
from app.triton.signature import Signature
from app.triton.tensor import Rows, TensorSpec
from tests.fakes.triton import Behaviour, FakeTriton, aborting, bent, never, put
from tests.gateway.stage import staged_models

WORDS = Ensemble("words", "", 64, {"text": TensorSpec("TEXT", "BYTES", (1,))}, {"scores": TensorSpec("SCORES", "FP32", (3,))})
QUERY = Texts(WORDS, ("scores",), [b"x"])


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

    async def infer(self, seconds: float = 5) -> tuple[str, dict[str, Rows]]:
        request = QUERY.request("r", 1, 0)
        return await self.pool.infer(Batch(QUERY, request), Deadline.after(seconds))

    @property
    def asked(self) -> int:
        return sum(len(fake.asked) for fake in self.fakes)


@pytest_asyncio.fixture(loop_scope="session")
async def pair() -> AsyncIterator[Pair]:
    async with FakeTriton.serving(staged_models()) as first, FakeTriton.serving(staged_models()) as second:
        roster = Roster(
            (first.address, second.address), lambda address, name: Endpoint(address, ChannelOptions(message_bytes=100_000))
        )
        await roster.refresh()
        for endpoint in roster.endpoints:
            endpoint.health.greet()
            endpoint.health.check(frozenset({"words"}))
        observed: list[Observed] = []
        alarms: list[str] = []
        pool = Pool(roster, observed.append, lambda endpoint, ensemble: alarms.append(ensemble), RetryBudget())
        yield Pair((first, second), pool, observed, alarms)
        await roster.close()


ELSEWHERE = {
    "draining": (grpc.StatusCode.UNAVAILABLE, "Server is stopping", "stopping"),
    "not loaded": (grpc.StatusCode.NOT_FOUND, "Request for unknown model: 'words' is not found", "not_ready"),
    "cut off": (grpc.StatusCode.UNAVAILABLE, "Socket closed", "cut_off"),
    "dropped": (grpc.StatusCode.CANCELLED, "", "cancelled_by_server"),
    "a dead step": (grpc.StatusCode.INTERNAL, "Stub process 'x_0_0' is not healthy.", "step_dead"),
}


@pytest.mark.parametrize(("code", "message", "outcome"), ELSEWHERE.values(), ids=ELSEWHERE)
async def test_what_never_ran_is_tried_once_on_the_other_endpoint(
    pair: Pair, code: grpc.StatusCode, message: str, outcome: str
) -> None:
    pair.all_do(aborting(code, message))
    assert (await pair.infer())[0] == "1"
    assert pair.outcomes == [outcome, "ok"]
    assert [len(fake.asked) for fake in pair.fakes] == [1, 1]


async def test_each_try_has_a_span_of_its_own_and_triton_is_told_of_that_one(pair: Pair) -> None:
    spans = InMemorySpanExporter()
    tracing = Tracing(spans)
    pair.all_do(aborting(grpc.StatusCode.UNAVAILABLE, "Socket closed"))
    step = partial(tracing.step, tracing.serve("POST", {}), "triton.infer", Kind.CLIENT, {"conch.batch": 1})
    await pair.pool.infer(Batch(QUERY, QUERY.request("r", 1, 0), step), Deadline.after(5))
    tracing.close()
    first, second = cast(tuple[Span, Span], spans.get_finished_spans())
    for span, outcome, again in ((first, "cut_off", False), (second, "ok", True)):
        attributes = span.attributes
        assert (attributes["conch.outcome"], attributes["conch.retry"], attributes["conch.batch"]) == (outcome, again, 1)
        [fake] = [fake for fake in pair.fakes if fake.address == attributes["conch.endpoint"]]
        assert f"{span.id:016x}" in fake.asked[0].metadata["traceparent"]
    assert (first.failure, second.failure) == ("cut_off", "")
    assert second.attributes["triton.model_version"] == "1"


@pytest.mark.parametrize("message", ["Server is stopping", "Socket closed"])
async def test_there_is_no_third_try(pair: Pair, message: str) -> None:
    pair.all_do(*[aborting(grpc.StatusCode.UNAVAILABLE, message)] * 3)
    with pytest.raises(Unavailable):
        await pair.infer()
    assert pair.asked == 2


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
    for endpoint in pair.pool.roster.endpoints:
        endpoint.health.check(frozenset())
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
        await pair.pool.infer(Batch(QUERY, b"x" * 200_000), Deadline.after(5))

    async def enormous(request: pb.ModelInferRequest, context: grpc.aio.ServicerContext) -> pb.ModelInferResponse:
        return pb.ModelInferResponse(raw_output_contents=[b"x" * 200_000])

    pair.all_do(enormous)
    with pytest.raises(UpstreamError):
        await pair.infer()
    assert not pair.alarms


async def test_second_tries_end_when_the_budget_for_them_is_spent(pair: Pair) -> None:
    async def dropped(request: pb.ModelInferRequest, context: grpc.aio.ServicerContext) -> pb.ModelInferResponse:
        await context.abort(grpc.StatusCode.CANCELLED, "")
        raise AssertionError

    for fake in pair.fakes:
        fake.behaviours["words"] = dropped
    answers = await asyncio.gather(*(pair.infer() for _ in range(50)), return_exceptions=True)
    assert all(isinstance(answer, Unavailable) for answer in answers)
    again = [call.outcome for call in pair.observed if call.again]
    assert 0 < again.count("cancelled_by_server") <= 10 + 50 // 10
    assert again.count("denied") > 0


async def test_two_that_have_as_much_to_do_are_asked_alike(pair: Pair) -> None:
    for _ in range(60):
        await pair.infer()
    assert min(len(fake.asked) for fake in pair.fakes) > 10


async def test_an_answer_of_nothing_is_a_bad_one(pair: Pair) -> None:
    async def nothing(request: pb.ModelInferRequest, context: grpc.aio.ServicerContext) -> pb.ModelInferResponse:
        return pb.ModelInferResponse()

    pair.all_do(nothing)
    with pytest.raises(BadUpstreamResponse):
        await pair.infer()
    assert pair.outcomes == ["bad_upstream_response"]
    assert pair.alarms == ["words"]


async def test_no_call_is_forgotten_whatever_became_of_it(pair: Pair) -> None:
    pair.all_do(
        aborting(grpc.StatusCode.UNAVAILABLE, "Exceeds maximum queue size"),
        aborting(grpc.StatusCode.INTERNAL, "boom"),
        aborting(grpc.StatusCode.INTERNAL, "Stub process 'x_0_0' is not healthy."),
        never,
    )
    await asyncio.gather(*(pair.infer(0.2) for _ in range(5)), return_exceptions=True)
    gone = asyncio.create_task(pair.infer())
    await asyncio.sleep(0)
    gone.cancel()
    await asyncio.wait([gone])
    for endpoint in pair.pool.roster.endpoints:
        assert endpoint.in_flight == 0
        assert endpoint.health.record("words").in_flight == 0


WORDS_BY_TENSORS = replace(
    WORDS, inputs={}, signature=Signature(64, tuple(WORDS.inputs.values()), tuple(WORDS.outputs.values()))
)
BY_TENSORS = probing(WORDS_BY_TENSORS, "x")


def nan(fake: FakeTriton) -> Behaviour:
    return bent(fake, lambda answer: put(answer, "SCORES", "FP32", (1, 3), b"\xff" * 12))


OWN_ERRORS: dict[str, Callable[[FakeTriton], Behaviour]] = {
    "the model failed": lambda fake: aborting(grpc.StatusCode.INTERNAL, "index out of range"),
    "the model refused it": lambda fake: aborting(grpc.StatusCode.INVALID_ARGUMENT, "odd"),
    "no numbers": nan,
}


@pytest.mark.parametrize("behave", OWN_ERRORS.values(), ids=OWN_ERRORS)
async def test_what_a_caller_did_with_tensors_is_not_held_against_the_endpoint(
    pair: Pair, behave: Callable[[FakeTriton], Behaviour]
) -> None:
    for fake in pair.fakes:
        fake.behaviours["words"] = behave(fake)
    batch = Batch(BY_TENSORS, BY_TENSORS.request("r", 1, 0))
    for _ in range(40):
        with pytest.raises((UpstreamError, BadUpstreamResponse)):
            await pair.pool.infer(batch, Deadline.after(5))
    assert [endpoint.health.out for endpoint in pair.pool.roster.endpoints] == [{}, {}]
    assert not pair.alarms
    for _ in range(40):
        with pytest.raises((UpstreamError, BadUpstreamResponse)):
            await pair.infer()
    assert [len(endpoint.health.out) for endpoint in pair.pool.roster.endpoints].count(1) == 1, "of texts it would be"


@pytest.mark.parametrize("behave", OWN_ERRORS.values(), ids=OWN_ERRORS)
async def test_a_model_that_dislikes_the_tensors_of_a_probe_is_alive(
    pair: Pair, behave: Callable[[FakeTriton], Behaviour]
) -> None:
    endpoint, fake = pair.pool.roster.endpoints[0], pair.fakes[0]
    endpoint.health.eject("words", "step_dead", 1)
    batch = Batch(BY_TENSORS, BY_TENSORS.request("probe", 1, 0))
    fake.behaviours["words"] = aborting(grpc.StatusCode.INTERNAL, "Stub process 'w' is not healthy.")
    await pair.pool.probe(endpoint, batch, Deadline.after(5))
    assert endpoint.health.out == {"words": "step_dead"}
    fake.behaviours["words"] = behave(fake)
    await pair.pool.probe(endpoint, batch, Deadline.after(5))
    assert endpoint.health.out == {}
