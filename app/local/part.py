"""One part of the stack: how it is started, and one run of it."""

import asyncio
import os
import re
import signal
from asyncio.subprocess import DEVNULL, Process
from collections.abc import Awaitable, Callable, Mapping, Set
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

from app.local.trouble import Exit, Trouble
from app.local.watchdog import Watchdog, is_alive, size, sweep

POLL, GLANCE = 0.05, 2.0
TELLING = re.compile(r"fail|error|unavailable|exception|denied|in use", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Part:
    """`is_ready` asks the running part; `within` and `grace` are the seconds it may take to get ready and to stop.

    `shared_memory` is the beginning of the names that it uses in /dev/shm, and `litter` that of an empty folder that it
    makes while it starts, and may leave. An `indivisible` part is of no use any more once one of the processes that it had
    when it got ready is gone.
    """

    name: str
    command: tuple[str, ...]
    environment: Mapping[str, str]
    directory: Path
    is_ready: Callable[[], Awaitable[bool]]
    within: float
    grace: float
    shared_memory: str | None = None
    litter: Path | None = None
    indivisible: bool = False

    def strewn(self) -> set[Path]:
        """All folders with such a name, whoever made them."""
        return set(self.litter.parent.glob(f"{self.litter.name}*")) if self.litter else set()


class Run:
    """One process of a part, the leader of its own group, writing to a log of its own."""

    def __init__(self, part: Part, process: Process, log: Path, watchdog: Watchdog, strewn: Set[Path] = frozenset()) -> None:
        self.part = part
        self.log = log
        self._process = process
        self._watchdog = watchdog
        self._started = monotonic()
        self._size = 0
        self._is_over = False
        self._strewn = strewn
        """Before it was ready; from then on, what it has made itself."""

    @classmethod
    async def start(cls, part: Part, log: Path, watchdog: Watchdog) -> "Run":
        log.parent.mkdir(parents=True, exist_ok=True)
        part.directory.mkdir(parents=True, exist_ok=True)
        strewn = part.strewn()
        with log.open("ab") as output:
            process = await asyncio.create_subprocess_exec(
                *part.command,
                cwd=part.directory,
                env=part.environment,
                stdin=DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        watchdog.guard(process.pid, part.shared_memory)
        return cls(part, process, log, watchdog, strewn)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def age(self) -> float:
        return monotonic() - self._started

    @property
    def crashed(self) -> bool:
        return (self._process.returncode or 0) < 0

    async def ended(self) -> str:
        """Waits until the part is of no use any more; says why."""
        waiting = asyncio.create_task(self._process.wait())
        while not (await asyncio.wait((waiting,), timeout=GLANCE))[0]:
            if self.part.indivisible and size(self.pid) < self._size:
                waiting.cancel()
                return "a process of it is gone"
        return describe(waiting.result())

    async def until_ready(self) -> float:
        """The seconds it took. Raises when the process ends first, or the time is up."""
        while not await self.part.is_ready():
            if self._process.returncode is not None:
                raise self._trouble(f"{self.part.name} ended while it started ({describe(self._process.returncode)}).")
            if self.age > self.part.within:
                raise self._trouble(f"{self.part.name} was not ready after {self.part.within:.0f} s.")
            await asyncio.sleep(POLL)
        self._size = size(self.pid)
        made = self.part.strewn() - self._strewn
        self._strewn = made if len(made) == 1 else set()  # else another one started beside it, and whose is whose nobody knows
        return self.age

    async def stop(self, grace: float | None = None) -> None:
        """Asks the process to end, then makes it, and leaves nothing of its group or of its shared memory."""
        if self._is_over:
            return
        with suppress(ProcessLookupError):
            self._process.terminate()
        patience = self.part.grace if self._size else min(self.part.grace, 1)  # what never got ready has nothing to finish
        await self._wait(patience if grace is None else grace)
        self.kill()
        await self._process.wait()
        await self._wait(1)
        if self.part.shared_memory:
            sweep(self.part.shared_memory)
        for folder in self._strewn if self._size else ():
            with suppress(OSError):
                folder.rmdir()
        self._watchdog.release(self.pid)
        self._is_over = True  # from here on the number may be another process's

    def kill(self) -> None:
        if not self._is_over:
            with suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)

    async def _wait(self, grace: float) -> None:
        limit = monotonic() + grace
        while is_alive(self.pid) and monotonic() < limit:  # noqa: ASYNC110  (the kernel sets no event)
            await asyncio.sleep(POLL)

    def _trouble(self, what: str) -> Trouble:
        return Trouble(f"{what} Its last words:\n{last_words(self.log)}", f"All of them are in {self.log}.", Exit.NOT_READY)


def describe(status: int) -> str:
    return f"signal {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"


def last_words(log: Path, count: int = 8) -> str:
    """The last lines of a log that speak of a failure, or its last lines where none does."""
    lines = [line[:300] for line in log.read_text(errors="replace").splitlines()]
    telling = [line for line in lines if TELLING.search(line)] or lines
    return "\n".join(f"  {line}" for line in telling[-count:])
