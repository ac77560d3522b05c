import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from app.admission.redis_limiter import RedisLimiter
from app.local.watchdog import Watchdog
from app.tenancy.tenant import Quota, Tenant
from tests.admission.redis_server import RedisServer, free_port


@pytest.fixture(scope="session")
def shared_server(tmp_path_factory: pytest.TempPathFactory, watchdog: Watchdog) -> Iterator[RedisServer]:
    server = RedisServer(free_port(), tmp_path_factory.mktemp("redis"), watchdog).start()
    yield server
    server.stop()


@pytest.fixture
def server(shared_server: RedisServer) -> Iterator[RedisServer]:
    """Empty at first. At the end no key of a limiter may live for ever."""
    with shared_server.client() as client:
        client.flushall()
        yield shared_server
        assert [key for key in client.scan_iter("conch:*") if client.ttl(key) == -1] == []


@pytest.fixture
def own_server(tmp_path: Path, watchdog: Watchdog) -> Iterator[RedisServer]:
    """Not started yet, and yours to kill."""
    server = RedisServer(free_port(), tmp_path, watchdog)
    yield server
    server.stop()


@pytest.fixture
async def limiter(server: RedisServer) -> AsyncIterator[RedisLimiter]:
    # The budget has tests of its own; elsewhere a busy machine must not end in a local decision.
    async with RedisLimiter(server.url, budget=5.0) as limiter:
        assert limiter.mode == "exact"
        yield limiter


@pytest.fixture
def tenant() -> Callable[..., Tenant]:
    def tenant(quota: Quota, *, name: str = "acme", **routes: Quota) -> Tenant:
        return Tenant(name, "standard", ("*",), quota, routes)

    return tenant


@pytest.fixture
def until() -> Callable[[Callable[[], object]], Awaitable[None]]:
    """Waits for what must come, without a promise of how soon."""

    async def until(condition: Callable[[], object]) -> None:
        async with asyncio.timeout(20):
            while True:
                if condition():
                    return
                await asyncio.sleep(0.005)

    return until
