"""SIGTERM: what runs may finish, and nothing is left behind."""

import asyncio
import os
import signal
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path

import grpc.aio
import httpx
import pytest
from tritonclient.grpc import service_pb2 as pb

from app.local.watchdog import is_alive
from tests.fakes.triton import FakeTriton
from tests.gateway.problems import CANARY, assert_problem
from tests.gateway.process import RunningGateway
from tests.gateway.stage import staged_models
from tests.peers import Redis, Triton, eventually


async def test_a_running_request_is_answered_and_then_the_process_ends(
    start_gateway: Callable[..., Awaitable[RunningGateway]], redis: Redis, staged_routes: Path
) -> None:
    async with FakeTriton.serving(staged_models()) as fake:
        release = asyncio.Event()

        async def held(request: pb.ModelInferRequest, context: grpc.aio.ServicerContext) -> pb.ModelInferResponse:
            await release.wait()
            return fake.well_formed(request)

        fake.behaviours["words"] = held
        gateway = await start_gateway(TRITON=fake.address, REDIS_URL=redis.url, ROUTES_FILE=str(staged_routes))
        running = asyncio.create_task(gateway.classify(CANARY, model="words", tenant="roomy", timeout_ms=9000))
        await fake.arrived.wait()

        os.kill(gateway.peer.pid, signal.SIGTERM)
        async with httpx.AsyncClient(trust_env=False) as stranger:
            while True:
                try:
                    await stranger.get(f"{gateway.address.url}/livez", headers={"connection": "close"})
                except httpx.TransportError:
                    break
        assert is_alive(gateway.peer.pid)
        release.set()
        answer = await running
        assert answer.status_code == 200
        await eventually(lambda: not is_alive(gateway.peer.pid), seconds=10)
        assert gateway.log().count(answer.headers["x-request-id"]) == 1, "its line is there as well"
        assert "Traceback" not in gateway.log()
        assert '"level":"error"' not in gateway.log()


@pytest.mark.parametrize("signals", [(signal.SIGTERM,), (signal.SIGTERM, signal.SIGTERM), (signal.SIGTERM, signal.SIGINT)])
async def test_what_can_not_be_waited_for_is_told_so_and_leaves_its_line(
    start_gateway: Callable[..., Awaitable[RunningGateway]],
    redis: Redis,
    staged_routes: Path,
    signals: tuple[signal.Signals, ...],
) -> None:
    async with FakeTriton.serving(staged_models()) as fake:
        fake.behaviours["words"] = never
        seconds = {"DRAIN_SECONDS": "1" if len(signals) == 1 else "20"}
        gateway = await start_gateway(TRITON=fake.address, REDIS_URL=redis.url, ROUTES_FILE=str(staged_routes), **seconds)
        running = asyncio.create_task(gateway.classify("a", model="words", tenant="roomy", timeout_ms=9000))
        await fake.arrived.wait()
        for number in signals:
            os.kill(gateway.peer.pid, number)
            await asyncio.sleep(0.2)
        answer = await running
        assert_problem(answer, 503, "overloaded")
        assert await gateway.peer.ended() == "exit status 0"
        [line] = [line for line in gateway.log().splitlines() if answer.headers["x-request-id"] in line]
        assert '"status":503,"code":"overloaded"' in line


async def never(request: pb.ModelInferRequest, context: grpc.aio.ServicerContext) -> pb.ModelInferResponse:
    await asyncio.Event().wait()
    raise AssertionError


async def test_a_collector_that_takes_no_spans_keeps_no_process_from_ending(
    start_gateway: Callable[..., Awaitable[RunningGateway]], small_triton: Triton, redis: Redis
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # connections are made, and nobody answers
        collector = {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{silent.getsockname()[1]}"}
        gateway = await start_gateway(TRITON=small_triton.grpc, REDIS_URL=redis.url, **collector, anew=True)
        assert (await gateway.classify("leaves a span")).status_code == 200
        ended = asyncio.create_task(gateway.peer.ended())
        os.kill(gateway.peer.pid, signal.SIGTERM)
        async with asyncio.timeout(7):  # the exporter itself would try for ten
            assert await ended == "exit status 0"
