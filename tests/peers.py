"""The real peers of the tests: a Triton and a Redis that a test may kill, pause and start again."""

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from app.local.address import Address
from app.local.part import Part, Run
from app.local.redis import redis
from app.local.triton import Installation, Ports, triton
from app.local.trouble import Trouble
from app.local.watchdog import Watchdog

ROOT = Path(__file__).resolve().parents[1]


async def eventually(holds: Callable[[], bool], seconds: float = 30) -> None:
    """For what only the outside world can make true; for our own code, wait for what it says."""
    async with asyncio.timeout(seconds):
        while not holds():
            await asyncio.sleep(0.02)


def only(*models: str) -> tuple[str, ...]:
    """Triton's arguments for a few models, with their steps, out of repositories of many: each step costs it half a second."""
    return ("--model-control-mode=explicit", *(f"--load-model={model}" for model in models))


class Peer:
    """One part, held by a test instead of a supervisor: nothing starts it again but the test."""

    def __init__(
        self, part: Part, log: Path, watchdog: Watchdog, run: Callable[[Part, Path, Watchdog], Awaitable[Run]] = Run.start
    ) -> None:
        self.part = part
        self.log = log
        self._begin = run
        self._watchdog = watchdog
        self._run: Run | None = None

    @property
    def pid(self) -> int:
        assert self._run is not None, f"{self.part.name} is not running"
        return self._run.pid

    async def start(self) -> None:
        """Again where it crashes: a stub of 24.10 may do so while it starts on a busy machine, and takes Triton along."""
        for tries_left in (2, 1, 0):
            self._run = await self._begin(self.part, self.log, self._watchdog)
            try:
                await self._run.until_ready()
                return
            except Trouble:
                if not (tries_left and self._run.crashed):
                    raise
                await self.kill()

    async def stop(self, grace: float | None = None) -> None:
        """As an operator would; `grace=0` kills at once."""
        if self._run is not None:
            run, self._run = self._run, None
            await run.stop(grace)

    async def ended(self) -> str:
        """Waits until the process ends by itself; says how, e.g. `exit status 0`."""
        assert self._run is not None, f"{self.part.name} is not running"
        return await self._run.ended()

    async def kill(self) -> None:
        await self.stop(grace=0)

    def pause(self) -> None:
        os.killpg(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.killpg(self.pid, signal.SIGCONT)


@dataclass(frozen=True, slots=True)
class Served:
    """Where a Triton is asked; addresses as `host:port`."""

    http: str
    grpc: str
    metrics: str


@dataclass(frozen=True, slots=True)
class Triton(Served):
    peer: Peer

    @property
    def log(self) -> Path:
        return self.peer.log

    @classmethod
    async def start(
        cls,
        installation: Installation,
        repositories: Sequence[Path],
        folder: Path,
        watchdog: Watchdog,
        *,
        traces: str | None = None,
        extra: Sequence[str] = (),
    ) -> "Triton":
        ports = Ports.free()
        part = triton(installation, repositories, ports, folder / "empty", traces=traces, extra=extra)
        peer = Peer(part, folder / "triton.log", watchdog)
        await peer.start()
        return cls(str(ports.http), str(ports.grpc), str(ports.metrics), peer)


@dataclass(frozen=True, slots=True)
class Redis:
    address: str
    peer: Peer

    @property
    def url(self) -> str:
        return f"redis://{self.address}/0"

    @classmethod
    async def start(cls, folder: Path, watchdog: Watchdog) -> "Redis":
        address = Address.free()
        peer = Peer(redis(address, folder), folder / "redis.log", watchdog)
        await peer.start()
        return cls(str(address), peer)
