"""Pings: a server that is strict about them, as Triton is, must never be annoyed.

Time is compressed: Triton takes a ping without data every 300 s, and we send one after 330 s. gRPC sends none within a second
of another, so that here it is 1 s and 1.1 s. What else keeps gRPC's pings down is switched off.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import grpc.aio
import pytest
from tritonclient.grpc import service_pb2 as pb

from app.deadline import Deadline
from app.triton.client import CallFailed, ChannelOptions, Endpoint
from tests.fakes.triton import FakeTriton
from tests.gateway.stage import staged_models

REQUEST = pb.ModelInferRequest(model_name="words", inputs=[{"shape": [1, 1]}]).SerializeToString()
LIFE = 3.6
"""Seconds: three pings."""


class Hastened(ChannelOptions):
    def arguments(self) -> list[tuple[str, int | str]]:
        arguments = {**dict(super().arguments()), "grpc.http2.max_pings_without_data": 0}
        arguments["grpc.keepalive_time_ms"] = int(arguments["grpc.keepalive_time_ms"]) // 300
        return list(arguments.items())


@dataclass(slots=True)
class StrictTriton(FakeTriton):
    """`peers` are the connections that calls came on: a new one shows that the former was given up."""

    peers: set[str] = field(default_factory=set)

    async def answer(self, request: pb.ModelInferRequest, context: grpc.aio.ServicerContext) -> pb.ModelInferResponse:
        self.peers.add(context.peer())
        response = self.well_formed(request)
        response.parameters["much"].string_param = "x" * 100_000  # makes gRPC measure the line, by pings
        return response


@asynccontextmanager
async def strict(interval_ms: int) -> AsyncIterator[tuple[StrictTriton, Endpoint]]:
    """A server that says GOAWAY at the second ping that comes sooner than that after another one."""
    options = [("grpc.http2.min_ping_interval_without_data_ms", interval_ms), ("grpc.http2.max_ping_strikes", 1)]
    fake = StrictTriton(staged_models(), options=options)
    await fake.start()
    endpoint = Endpoint(fake.address, Hastened())
    try:
        yield fake, endpoint
    finally:
        await endpoint.close()
        await fake.stop()


async def waits(fake: StrictTriton, endpoint: Endpoint, seconds: float = LIFE) -> None:
    """For one call all the time."""

    async def slow(request: pb.ModelInferRequest, context: grpc.aio.ServicerContext) -> pb.ModelInferResponse:
        await asyncio.sleep(seconds)
        return await fake.answer(request, context)

    fake.behaviours["words"] = slow
    await endpoint.infer(REQUEST, Deadline.after(20), ())
    fake.behaviours.clear()


async def works(fake: StrictTriton, endpoint: Endpoint) -> None:
    """Call after call, with much data, and the survey's look each second."""
    end = asyncio.get_running_loop().time() + LIFE
    while asyncio.get_running_loop().time() < end:
        await endpoint.live()
        for _ in range(20):
            await endpoint.infer(REQUEST, Deadline.after(20), ())
        await asyncio.sleep(0.2)


async def rests(fake: StrictTriton, endpoint: Endpoint) -> None:
    await endpoint.infer(REQUEST, Deadline.after(20), ())
    await asyncio.sleep(LIFE)


async def connections(life: Callable[[StrictTriton, Endpoint], Awaitable[None]]) -> int:
    async with strict(1000) as (fake, endpoint):
        await life(fake, endpoint)
        await endpoint.infer(REQUEST, Deadline.after(20), ())
        return len(fake.peers)


async def impatience() -> str:
    async with strict(60_000) as (fake, endpoint):
        with pytest.raises(CallFailed) as raised:
            await waits(fake, endpoint, seconds=20)
        return f"{raised.value.failure.name}: {raised.value.message}"


async def test_no_connection_is_given_up_for_our_pings_whether_it_waits_or_works_or_rests() -> None:
    *counts, reproach = await asyncio.gather(connections(waits), connections(works), connections(rests), impatience())
    assert counts == [1, 1, 1]
    assert reproach.startswith("cut_off"), "this is what a ping too many looks like"
    assert reproach.endswith("Too many pings")
