"""Triton gone, late, or not there yet: refused at once, and back by itself."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from time import monotonic

from tests.fakes.triton import FakeTriton
from tests.gateway.problems import CANARY, assert_problem
from tests.gateway.process import ROOT, RunningGateway
from tests.gateway.stage import staged_models
from tests.peers import Redis, Triton, only

Start = Callable[..., Awaitable[RunningGateway]]
REPOSITORY = ROOT / "tests" / "repository"


async def until_served(gateway: RunningGateway, model: str) -> None:
    async with asyncio.timeout(20):
        while (await gateway.classify(CANARY, model=model)).status_code != 200:
            await asyncio.sleep(0.02)


async def test_when_triton_is_killed_calls_are_refused_at_once_until_it_is_back(
    start_triton: Callable[..., Awaitable[Triton]], start_gateway: Start, redis: Redis
) -> None:
    triton = await start_triton(REPOSITORY, extra=only("noop", "sleepy"))
    gateway = await start_gateway(TRITON=triton.grpc, REDIS_URL=redis.url)
    running = asyncio.create_task(gateway.classify("5", CANARY, model="sleepy", timeout_ms=20_000))
    assert (await gateway.classify(CANARY)).status_code == 200
    await asyncio.sleep(0.2)

    killed = monotonic()
    await triton.peer.kill()
    assert_problem(await running, 503, "unavailable")
    assert monotonic() - killed < 2, "killing waits for the stubs too"
    for _ in range(50):  # before the gateway has looked again, and after
        asked = monotonic()
        answer = await gateway.classify(CANARY)
        assert monotonic() - asked < 1
        assert_problem(answer, 503, "unavailable")
        assert 1 <= int(answer.headers["retry-after"]) <= 5, "as long again as it has been away"
        await asyncio.sleep(0.02)
    assert not (await gateway.status())["endpoints"][0]["reachable"]
    assert (await gateway.client.get("/readyz")).status_code == 200, "readiness latches"
    assert (await gateway.client.get("/livez")).status_code == 200

    await triton.peer.start()
    await until_served(gateway, "noop")


async def test_a_gateway_that_starts_first_is_alive_and_becomes_ready_when_triton_does(
    start_gateway: Start, redis: Redis, staged_routes: Path
) -> None:
    async with FakeTriton.serving(staged_models()) as fake:
        await fake.stop()
        gateway = await start_gateway(TRITON=fake.address, REDIS_URL=redis.url, ROUTES_FILE=str(staged_routes), ready="/livez")
        assert (await gateway.client.get("/readyz")).status_code == 503
        assert_problem(await gateway.classify(CANARY, model="words"), 503, "unavailable")
        status = await gateway.status()
        assert (status["ready"], status["endpoints"][0]["reachable"]) == (False, False)

        fake.ready["spans"] = False
        await fake.start()
        await until_served(gateway, "words")
        assert (await gateway.client.get("/readyz")).status_code == 503, "a required route can't be served yet"
        assert_problem(await gateway.post("/v1/entities", {"model": "spans", "inputs": [CANARY]}), 503, "model_unavailable")
        assert "spans is not ready" in await gateway.faults("spans")

        fake.ready.clear()
        async with asyncio.timeout(10):
            while (await gateway.client.get("/readyz")).status_code != 200:
                await asyncio.sleep(0.02)
