"""Starts parts, keeps them running, and leaves nothing of them."""

import asyncio
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from app.local.part import Part, Run
from app.local.trouble import Trouble
from app.local.watchdog import Watchdog

SHORTEST, LONGEST = 0.5, 15.0
STEADY = 30.0
"""A part that ran so many seconds begins anew with the shortest pause."""


class Audience(Protocol):
    """Who is told what happens to each part; `busy` says that it goes on."""

    def tell(self, name: str, news: str, *, busy: bool = False) -> None: ...


class Supervisor:
    """Holds the parts for as long as it is entered. Leaving it stops them, the last one started first."""

    def __init__(self, logs: Path, audience: Audience) -> None:
        self._logs = logs
        self._audience = audience
        self._runs: dict[str, Run] = {}
        self._keepers: list[asyncio.Task[None]] = []
        self._stack = ExitStack()

    async def __aenter__(self) -> Self:
        self._watchdog = self._stack.enter_context(Watchdog())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._stack:
            for keeper in self._keepers:
                keeper.cancel()
            await asyncio.gather(*self._keepers, return_exceptions=True)
            for name, run in reversed(self._runs.items()):
                self._audience.tell(name, "stopping", busy=True)
                await run.stop()
                self._audience.tell(name, "stopped")

    async def start(self, *parts: Part) -> None:
        """Returns once all of them are ready; raises when one can't be. From then on, one that ends is started again."""
        try:
            async with asyncio.TaskGroup() as group:
                for part in parts:
                    group.create_task(self._first(part))
        except ExceptionGroup as troubles:
            raise troubles.exceptions[0] from None
        self._keepers += [asyncio.create_task(self._keep(part)) for part in parts]

    def kill(self) -> None:
        """Ends all parts at once; for whoever can't wait for them to stop."""
        for run in self._runs.values():
            run.kill()

    def pid(self, name: str) -> int:
        return self._runs[name].pid

    async def _first(self, part: Part) -> None:
        log = self._logs / f"{part.name}.log"
        if log.exists():
            log.replace(log.with_suffix(".previous.log"))
        try:
            await self._run(part)
        except Trouble:
            # A stub of 24.10 may crash while it starts on a busy machine, and takes Triton along. What ends by itself says why.
            if not self._runs[part.name].crashed:
                raise
            await self._runs[part.name].stop(grace=0)
            self._audience.tell(part.name, "crashed, starting again", busy=True)
            await self._run(part)

    async def _run(self, part: Part) -> None:
        self._audience.tell(part.name, "starting", busy=True)
        run = self._runs[part.name] = await Run.start(part, self._logs / f"{part.name}.log", self._watchdog)
        self._audience.tell(part.name, f"ready in {await run.until_ready():.1f} s")

    async def _keep(self, part: Part) -> None:
        pause = SHORTEST
        while True:
            run = self._runs[part.name]
            how = await run.ended()
            await run.stop(grace=0)
            pause = SHORTEST if run.age > STEADY else pause
            self._audience.tell(part.name, f"ended ({how}), starting again in {pause:.1f} s", busy=True)
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST)
            try:
                await self._run(part)
            except (Trouble, OSError):  # the next turn tells of it, and tries again
                await self._runs[part.name].stop(grace=0)
