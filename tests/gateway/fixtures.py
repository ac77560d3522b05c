"""Gateways for every test that asks: over a real Triton that starts in seconds, or over one that does as it is told."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from ssl import SSLContext
from typing import Any

import pytest
import pytest_asyncio

from app.local.triton import Installation
from app.local.watchdog import Watchdog
from tests.fakes.triton import FakeTriton
from tests.gateway.problems import canaries
from tests.gateway.process import ROOT, RunningGateway
from tests.gateway.stage import STAGED, staged_models
from tests.gateway.tenants import Tenants
from tests.peers import Redis, Triton

ROUTES = ROOT / "tests" / "gateway" / "routes.yaml"
EXPLICIT = ("--model-control-mode=explicit", "--load-model=*")
"""Everything is loaded at the start, and a test may load it again."""


@pytest.fixture(scope="session")
def tenants(tmp_path_factory: pytest.TempPathFactory) -> Tenants:
    return Tenants.write(tmp_path_factory.mktemp("tenants") / "tenants.yaml")


@pytest.fixture(scope="session")
def gateway_logs(tenants: Tenants) -> Iterator[list[Path]]:
    """Of every gateway of the session. When all is over, each line must be JSON, and no text and no key in any."""
    logs: list[Path] = []
    yield logs
    forbidden = canaries(tenants.keys)
    for line in (line for log in logs for line in log.read_text().splitlines()):
        event = json.loads(line)
        assert {"time", "level", "logger"} <= event.keys(), line
        assert not [word for word in forbidden if word in line], line


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def small_triton(
    installation: Installation, watchdog: Watchdog, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Triton]:
    """Serves tests/repository and nothing else, so that nothing has to be built. Shared, like `triton`; who loads a model there
    with another config loads it with its own again."""
    repositories, folder = [ROOT / "tests" / "repository"], tmp_path_factory.mktemp("triton")
    triton = await Triton.start(installation, repositories, folder, watchdog, extra=EXPLICIT)
    yield triton
    await triton.peer.kill()


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def gateways(
    tenants: Tenants, watchdog: Watchdog, tmp_path_factory: pytest.TempPathFactory, gateway_logs: list[Path]
) -> AsyncIterator[Callable[..., Awaitable[RunningGateway]]]:
    async with AsyncExitStack() as stack:

        async def start(
            *, ready: str = "/readyz", tls: SSLContext | None = None, anew: bool = False, **settings: str
        ) -> RunningGateway:
            folder = tmp_path_factory.mktemp("gateway")
            named = {name if name.startswith("OTEL_") else f"CONCH_{name}": value for name, value in settings.items()}
            named = {"CONCH_ROUTES_FILE": str(ROUTES), **named}
            gateway = await RunningGateway.start(tenants, named, folder, watchdog, ready, tls, anew)
            gateway_logs.append(gateway.peer.log)
            stack.push_async_callback(gateway.stop)
            return gateway

        yield start


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def gateway(gateways: Callable[..., Awaitable[RunningGateway]], small_triton: Triton, redis: Redis) -> RunningGateway:
    """Over a real Triton and a real Redis. Shared: don't harm it."""
    return await gateways(TRITON=small_triton.grpc, REDIS_URL=redis.url)


@pytest_asyncio.fixture(loop_scope="session")
async def start_gateway(
    gateways: Callable[..., Awaitable[RunningGateway]],
) -> AsyncIterator[Callable[..., Awaitable[RunningGateway]]]:
    """`await start_gateway(TRITON=..., ready="/readyz", anew=False)`: one of the test's own, with any setting."""
    started: list[RunningGateway] = []

    async def start(**settings: Any) -> RunningGateway:
        started.append(await gateways(**settings))
        return started[-1]

    yield start
    for gateway in started:
        await gateway.peer.stop()


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def _stage() -> AsyncIterator[FakeTriton]:
    async with FakeTriton.serving(staged_models()) as fake:
        yield fake


@pytest.fixture(scope="session")
def staged_routes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    routes = tmp_path_factory.mktemp("routes") / "routes.yaml"
    routes.write_text(STAGED)
    return routes


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def _staged(
    gateways: Callable[..., Awaitable[RunningGateway]], _stage: FakeTriton, redis: Redis, staged_routes: Path
) -> RunningGateway:
    short = {"BODY_TIMEOUT_SECONDS": "0.5", "HEADER_TIMEOUT_SECONDS": "1"}
    return await gateways(TRITON=_stage.address, REDIS_URL=redis.url, ROUTES_FILE=str(staged_routes), **short)


@pytest_asyncio.fixture(loop_scope="session")
async def staged(_staged: RunningGateway, _stage: FakeTriton) -> RunningGateway:
    """Over `stage`, with a route of every task: words, vectors, spans and heads.

    What the last test made that Triton do is over, for the gateway too; and so is the silence of one that held the event loop.
    """
    _stage.forget()
    status = await _staged.status()
    if status["endpoints"][0]["out"]:
        await _stage.stop()  # what comes back at an address is taken for another process, and probed at once
        await _stage.start()
        status = await _staged.status()
    async with asyncio.timeout(30):
        while not all(route["served"] for route in status["routes"].values()):
            await asyncio.sleep(0.05)
            status = await _staged.status()
    return _staged


@pytest_asyncio.fixture(loop_scope="session")
async def stage(_stage: FakeTriton, staged: RunningGateway) -> AsyncIterator[FakeTriton]:
    """The Triton behind `staged`."""
    _stage.forget()
    yield _stage
    _stage.forget()
