"""Endpoints that fall ill and get well, with everything that watches them at work."""

import asyncio
import logging
import math
from array import array
from collections.abc import Callable
from time import monotonic

import grpc
import pytest

from app.errors import ModelUnavailable
from app.triton import record
from tests.fakes.triton import Behaviour, FakeTriton, aborting, bent, model, never, put
from tests.peers import eventually
from tests.routing.ward import MODELS, PROBE, SCORES, Open


def nan(fake: FakeTriton) -> Behaviour:
    return bent(fake, lambda answer: put(answer, "SCORES", "FP32", (1, 3), array("f", [math.nan] * 3).tobytes()))


def proof(message: str, code: grpc.StatusCode = grpc.StatusCode.INTERNAL) -> Callable[[FakeTriton], Behaviour]:
    return lambda fake: aborting(code, message)


DEAD = proof("Stub process 'm_0_0' is not healthy.")
POISONED = proof("onnx runtime error 1: CUDA error: device-side assert triggered hunter2")
FAILING = proof("hunter2")


@pytest.mark.parametrize(
    ("behave", "reason", "count"),
    [(DEAD, "step_dead", 1), (DEAD, "step_dead", 3), (POISONED, "gpu_lost", 2)],
    ids=["a dead step, alone", "a dead step, on three", "a lost GPU, on two"],
)
async def test_proof_takes_every_endpoint_out_and_a_real_inference_brings_each_back(
    ward: Open, count: int, behave: Callable[[FakeTriton], Behaviour], reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    scene = await ward(count)
    for fake in scene.fakes:
        fake.behaviours["m"] = behave(fake)
    await scene.tried(count)
    await scene.becomes()
    with pytest.raises(ModelUnavailable) as refused:
        await scene.infer()
    assert refused.value.retry_after is not None
    before = len(scene.observed)
    await asyncio.sleep(0.6)
    assert scene.serving() == [], "every one of them says that it is ready"
    probes = [asked for fake in scene.fakes for asked in fake.asked if asked.texts == [PROBE]]
    assert probes
    asked = [call for call in scene.observed[before:] if call.ensemble == "m"]
    assert len(asked) == len(probes), "none but probes go there"

    for fake in scene.fakes:
        fake.behaviours.clear()
    await scene.becomes(*range(count))
    await eventually(lambda: bool(scene.survey.table.servings["r"].ensembles))
    assert await scene.tried(5) == ["ok"] * 5
    assert scene.ejections.count(("m", reason)) == count
    for fake in scene.fakes:
        assert caplog.text.count(f"endpoint {fake.address} is taken out for m: {reason}") == 1
        assert caplog.text.count(f"endpoint {fake.address} is back for m") == 1
    assert "hunter2" not in caplog.text


async def test_what_one_ensemble_suffers_leaves_the_others_alone(ward: Open) -> None:
    scene = await ward(1)
    scene.fakes[0].behaviours["m"] = DEAD(scene.fakes[0])
    await scene.tried(1)
    assert scene.serving("n") == [0]
    assert await scene.tried(3, "n") == ["ok"] * 3


@pytest.mark.parametrize(("ill", "count", "out"), [(1, 1, 0), (1, 2, 1), (2, 2, 1), (3, 3, 1), (4, 4, 2)])
@pytest.mark.parametrize("behave", [FAILING, nan], ids=["failures", "bad answers"])
async def test_suspicion_takes_out_half_of_the_endpoints_at_most(
    ward: Open, behave: Callable[[FakeTriton], Behaviour], ill: int, count: int, out: int
) -> None:
    scene = await ward(count)
    for fake in scene.fakes[:ill]:
        fake.behaviours["m"] = behave(fake)
    for _ in range(40 * count):
        await scene.tried(1)
        if len(scene.serving()) == count - out:
            break
    assert len(scene.serving()) == count - out
    await scene.tried(20)
    assert len(scene.serving()) == count - out
    for fake in scene.fakes:
        fake.behaviours.clear()
    await scene.becomes(*range(count))


async def test_four_failures_in_a_row_are_no_reason(ward: Open) -> None:
    scene = await ward(2)
    for fake in scene.fakes:
        fake.behaviours["m"] = FAILING(fake)
    for endpoint in scene.roster.endpoints:
        endpoint.health.check(frozenset({"m"} if endpoint is scene.roster.endpoints[0] else ()))
    assert await scene.tried(4) == ["upstream_error"] * 4
    assert not scene.ejections


async def test_an_ensemble_that_hangs_while_it_says_it_is_ready_is_refused_at_once_until_it_answers(
    ward: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record, "_PATIENCE", 0.2)
    monkeypatch.setattr(record, "_SILENCE", 1.0)
    scene = await ward(1)
    assert await scene.tried(3) == ["ok"] * 3
    scene.fakes[0].behaviours["m"] = never
    waiting = [asyncio.create_task(scene.infer(seconds=20)) for _ in range(3)]
    await scene.becomes()
    assert scene.ejections == [("m", "hung")]
    asked = monotonic()
    with pytest.raises(ModelUnavailable):
        await scene.infer(seconds=20)
    assert monotonic() - asked < 0.5
    for task in waiting:
        task.cancel()
    await asyncio.sleep(0.8)
    assert scene.serving() == []
    scene.fakes[0].behaviours.clear()
    await scene.becomes(0)


async def test_a_full_queue_that_never_empties_is_a_hang(ward: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record, "_SILENCE", 1.0)
    scene = await ward(2)
    full = aborting(grpc.StatusCode.UNAVAILABLE, "Exceeds maximum queue size")
    scene.fakes[0].behaviours["m"] = full
    while scene.serving() != [1]:
        assert set(await scene.tried(2)) <= {"ok", "overloaded"}
        await asyncio.sleep(0.05)
    assert scene.ejections == [("m", "hung")]


async def test_a_model_that_was_changed_is_noticed_by_the_first_answer_that_does_not_fit(ward: Open) -> None:
    scene = await ward(1)
    scene.fakes[0].models = {**MODELS, "m": model("m", {**SCORES, "SCORES": ("FP64", (3,))})}
    codes = await scene.tried(1)
    assert codes == ["bad_upstream_response"]
    began = monotonic()
    while (await scene.tried(1)) != ["ok"]:
        await asyncio.sleep(0.02)
    assert monotonic() - began < 2, "and not at the next look at all configs"
