"""Endpoints that come and go, and those that are slow to say that they are there."""

import asyncio
import gc
from contextlib import suppress
from time import monotonic

import grpc
import pytest
from tritonclient.grpc import service_pb2 as pb

from app.errors import ModelUnavailable, Unavailable, UpstreamError
from app.triton.client import CallFailed
from tests.fakes.triton import aborting
from tests.peers import eventually
from tests.routing.ward import PROBE, Open


async def test_an_endpoint_that_stops_and_starts_again_is_probed_before_it_serves(ward: Open) -> None:
    scene = await ward(2)
    await scene.fakes[0].stop()
    await scene.becomes(1)
    scene.fakes[0].asked.clear()
    await scene.fakes[0].start()
    await scene.becomes(0, 1)
    assert [asked.texts for asked in scene.fakes[0].asked if asked.request.model_name == "m"] == [[PROBE]]


async def test_when_none_can_be_reached_it_is_said_at_once(ward: Open) -> None:
    scene = await ward(2)
    for fake in scene.fakes:
        await fake.stop()
    await scene.becomes()
    with pytest.raises(Unavailable):
        await scene.infer()


async def test_a_refusal_says_when_the_next_probe_is(ward: Open) -> None:
    scene = await ward(2)
    for endpoint, pause in zip(scene.roster.endpoints, (40, 20), strict=True):
        endpoint.health.eject("m", "step_dead", pause)
    refused = []
    for _ in range(2):  # by the pool, and then by the table, once that knows
        with pytest.raises(ModelUnavailable) as raised:
            await scene.infer()
        refused.append(raised.value)
        scene.survey.alarm()
        await eventually(lambda: not scene.survey.table.servings["r"].ensembles)
    assert [refusal.retry_after in (19, 20) for refusal in refused] == [True, True]
    assert refused[0].detail != refused[1].detail


async def test_a_new_address_serves_within_two_seconds_and_one_that_vanished_is_asked_no_more(ward: Open) -> None:
    scene = await ward(2, named=1)
    assert scene.serving() == [0]
    began = monotonic()
    scene.addresses = [fake.address for fake in scene.fakes]
    await scene.becomes(0, 1)
    assert monotonic() - began < 2

    async def slow(request: pb.ModelInferRequest, context: grpc.aio.ServicerContext) -> pb.ModelInferResponse:
        await asyncio.sleep(1.5)
        return scene.fakes[0].well_formed(request)

    scene.fakes[0].behaviours["m"] = slow
    running = [asyncio.create_task(scene.infer()) for _ in range(8)]
    await scene.fakes[0].arrived.wait()
    scene.addresses = [scene.fakes[1].address]
    await scene.becomes(1)
    asked = len(scene.fakes[0].asked)
    assert await scene.tried(10) == ["ok"] * 10
    assert await asyncio.gather(*running) == ["1"] * 8, "what had begun there is finished"
    assert len(scene.fakes[0].asked) == asked


async def test_when_all_addresses_change_at_once_the_former_ones_serve_until_a_new_one_does(ward: Open) -> None:
    scene = await ward(2, named=1)
    scene.fakes[1].ready["m"] = scene.fakes[1].ready["n"] = False
    scene.addresses = [scene.fakes[1].address]
    await eventually(lambda: len(scene.roster.endpoints) == 2)
    ended = monotonic() + 1.5
    while monotonic() < ended:
        assert await scene.tried(1) == ["ok"]
        await asyncio.sleep(0.05)
    scene.fakes[1].ready.clear()
    await scene.becomes(1)
    assert await scene.tried(10) == ["ok"] * 10
    assert [endpoint.address for endpoint in scene.roster.endpoints] == scene.addresses


async def test_a_silent_endpoint_keeps_nobody_from_hearing_of_a_new_one(ward: Open) -> None:
    scene = await ward(2, named=1)
    scene.fakes[0].stall = 30
    began = monotonic()
    scene.addresses = [fake.address for fake in scene.fakes]
    await scene.becomes(1)
    assert monotonic() - began < 6


@pytest.mark.parametrize("answer", ["ok", "overloaded"])
async def test_a_control_plane_that_is_slow_takes_nothing_from_an_endpoint_that_answers(ward: Open, answer: str) -> None:
    """If only with errors."""
    scene = await ward(2)
    if answer == "overloaded":
        for fake in scene.fakes:
            fake.behaviours["m"] = aborting(grpc.StatusCode.UNAVAILABLE, "Exceeds maximum queue size")
    scene.fakes[0].stall = 30
    ended = monotonic() + 3.5
    while monotonic() < ended:
        assert await scene.tried(1) == [answer]
        await asyncio.sleep(0.05)
    assert scene.serving() == [0, 1]
    scene.fakes[0].stall = 0


async def test_a_failed_call_leaves_nothing_for_the_garbage_collector(ward: Open) -> None:
    """Hundreds that fail in a row would stop the process for longer than a deadline may be missed by."""
    scene = await ward(1)
    scene.fakes[0].behaviours["m"] = aborting(grpc.StatusCode.INTERNAL, "boom")
    gc.collect()
    gc.disable()
    try:
        with suppress(UpstreamError):
            await scene.infer()
        left = sum(issubclass(type(thing), CallFailed) for thing in gc.get_objects())
    finally:
        gc.enable()
    assert left == 0


@pytest.mark.parametrize(("version", "told"), [("2.51.0", True), ("2.70.1", False)])
async def test_a_version_below_the_floor_is_warned_about_once(
    ward: Open, caplog: pytest.LogCaptureFixture, version: str, told: bool
) -> None:
    scene = await ward(2, named=0)
    for fake in scene.fakes:
        fake.version = version
    scene.addresses = [fake.address for fake in scene.fakes]
    await scene.becomes(0, 1)
    assert caplog.text.count("older than 26.06") == told
