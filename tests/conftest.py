"""What every test may ask for. The peers start once, when the first test asks, and all of a session runs on one event loop."""

import gc
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
import pytest_asyncio
from xdist.scheduler import LoadFileScheduling

from app.local.triton import Installation, install
from app.local.watchdog import Watchdog
from tests.local.up import Up
from tests.peers import Redis, Served, Triton

ROOT = Path(__file__).resolve().parent.parent

pytest_plugins = ("tests.gateway.fixtures", "tests.storage.fixtures")


ALONE = tuple(f"tests/models/test_{name}.py" for name in ("build", "configs", "halves"))
WITH_MODELS = ("tests/models/", "tests/docs/test_snippets.py", "tests/local/test_stack.py::test_the_real_models")
WITH_SMALL_TRITON = (
    *(f"tests/api/test_{name}.py" for name in ("bulk", "embeddings")),
    *("tests/deploy/test_chart_at_work.py", "tests/edge/test_shortcut.py", "tests/models/test_peers.py"),
    *(f"tests/gateway/test_{name}.py" for name in ("cli", "deadlines", "drain", "faults", "inference", "limits", "parts")),
    *(f"tests/gateway/test_{name}.py" for name in ("queues", "redis_loss", "shutdown", "text")),
    "tests/routing/test_models.py",
)
WAITING = (
    *("tests/routing/test_coming_and_going.py", "tests/admission/test_redis_limiter.py", "tests/local/test_supervisor.py"),
    *("tests/gateway/test_tokens.py", "tests/admission/test_redis_sets.py", "tests/admission/test_redis_outages.py"),
    *("tests/routing/test_probe.py", "tests/edge/test_wire.py", "tests/routing/test_reload.py", "tests/edge/test_tls.py"),
    *("tests/gateway/test_overload.py", "tests/edge/test_echo.py", "tests/admission/test_bulkhead.py"),
)
"""They wait more than they compute: beside the first, which compute more than they wait."""
FIRST = (
    *("models", "small_triton", *WAITING, "tests/gateway/test_endpoints.py", "tests/local/test_stack.py"),
    *("tests/gateway/test_shared_limits.py", "tests/api/test_docs.py", "tests/api/test_conformance.py"),
    *("tests/models/test_halves.py", "tests/models/test_build.py"),
)
"""The longest of them, so that no worker is left with one when the others have no more to do."""


def scope_of(nodeid: str) -> str:
    """A file's tests stay on one worker, and so do all that ask for the same Triton, which then starts once."""
    if nodeid.startswith(WITH_SMALL_TRITON):
        return "small_triton"
    if nodeid.startswith(WITH_MODELS) and not nodeid.startswith(ALONE):
        return "models"
    return nodeid.partition("::")[0]


def pytest_configure() -> None:
    """What is started here must end by these signals, though the tests run in the background, or under nohup."""
    for number, usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, usual)


class Scheduling(LoadFileScheduling):  # type: ignore[misc]
    def _split_scope(self, nodeid: str) -> str:
        return scope_of(nodeid)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadFileScheduling:
    return Scheduling(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: place_of(scope_of(item.nodeid)))


def place_of(scope: str) -> tuple[int, int]:
    """The others as if they were shuffled: neighbours tend to wait, or to compute, at the same time."""
    return FIRST.index(scope) if scope in FIRST else len(FIRST), -crc32(scope.encode())


def pytest_collection_finish() -> None:
    """What is there by now stays, and need not be walked each time that a test has garbage collected."""
    gc.freeze()


@pytest.fixture(scope="session")
def home() -> Path:
    """Kept between sessions, so that the models are built once."""
    return (ROOT / os.environ.get("CONCH_TEST_HOME", ".conch")).resolve()


@pytest.fixture(scope="session")
def models(home: Path) -> Path:
    """The model repository, built."""
    from app.local.models.repository import build  # its libraries are heavy, and few tests need it

    return build(ROOT / "model_repository", home, ROOT / "requirements" / "models.txt")


@pytest.fixture(scope="session")
def installation(home: Path) -> Installation:
    return install(home)


@pytest.fixture(scope="session")
def watchdog() -> Iterator[Watchdog]:
    """Ends the peers even when the session is killed."""
    with Watchdog() as watchdog:
        yield watchdog


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def stack(models: Path, watchdog: Watchdog, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Up]:
    """`conch up`, with the built models behind config/routes.yaml. Shared: don't harm it."""
    up = await Up.begin(tmp_path_factory.mktemp("stack") / "home", models=models)
    watchdog.guard(up.process.pid, None)
    try:
        yield await up.ready()
    finally:
        await up.put_away()
        watchdog.release(up.process.pid)


@pytest.fixture(scope="session")
def triton(stack: Up) -> Served:
    """That of `stack`, with the built models and no others. Don't harm it, `start_triton` another one for that."""
    return stack.triton()


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def redis(watchdog: Watchdog, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Redis]:
    """Shared: don't harm it, `start_redis` another one for that."""
    redis = await Redis.start(tmp_path_factory.mktemp("redis"), watchdog)
    yield redis
    await redis.peer.stop()


@pytest.fixture(scope="session")
def redis_url(redis: Redis) -> str:
    return redis.url


@pytest_asyncio.fixture(loop_scope="session")
async def start_triton(
    installation: Installation, watchdog: Watchdog, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Callable[..., Awaitable[Triton]]]:
    """`await start_triton(repository, ..., traces=None, extra=())`: one of the test's own, stopped when the test is over."""
    async with AsyncExitStack() as stack:

        async def start(*repositories: Path, traces: str | None = None, extra: tuple[str, ...] = ()) -> Triton:
            folder = tmp_path_factory.mktemp("triton")
            triton = await Triton.start(installation, repositories, folder, watchdog, traces=traces, extra=extra)
            stack.push_async_callback(triton.peer.kill)
            return triton

        yield start


@pytest_asyncio.fixture(loop_scope="session")
async def start_redis(
    watchdog: Watchdog, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Callable[[], Awaitable[Redis]]]:
    """`await start_redis()`: one of the test's own, stopped when the test is over."""
    async with AsyncExitStack() as stack:

        async def start() -> Redis:
            redis = await Redis.start(tmp_path_factory.mktemp("redis"), watchdog)
            stack.push_async_callback(redis.peer.stop)
            return redis

        yield start
