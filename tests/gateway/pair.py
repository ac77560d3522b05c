"""Two real Tritons behind one gateway, and callers who keep them busy."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.gateway.problems import CANARY
from tests.gateway.process import RunningGateway
from tests.peers import Triton


@dataclass
class Load:
    """Callers who ask again and again, until they are told to stop."""

    gateway: RunningGateway
    codes: Counter[str] = field(default_factory=Counter)
    stopped: bool = False
    pause: float = 0
    """Between an answer and the next question: what starts or ends meanwhile needs processors too."""

    async def caller(self, model: str, text: str) -> None:
        while not self.stopped:
            answer = await self.gateway.classify(text, model=model)
            self.codes["ok" if answer.status_code == 200 else answer.json()["code"]] += 1
            await asyncio.sleep(self.pause)

    @property
    def failures(self) -> int:
        return self.codes.total() - self.codes["ok"]


@dataclass
class Pair:
    tritons: tuple[Triton, Triton]
    gateway: RunningGateway

    async def out(self, at: int) -> dict[str, str]:
        """What is taken out on one of them, and why."""
        return dict((await self.endpoint(at))["out"])

    async def endpoint(self, at: int) -> dict[str, Any]:
        endpoints = (await self.gateway.status())["endpoints"]
        return next(dict(endpoint) for endpoint in endpoints if endpoint["address"] == self.tritons[at].grpc)

    async def until(self, at: int, *, serves: str, yes: bool = True, seconds: float = 20) -> None:
        async with asyncio.timeout(seconds):
            while (serves in (await self.endpoint(at))["serving"]) is not yes:
                await asyncio.sleep(0.05)

    async def wakes(self, at: int) -> bool:
        """Goes on after a pause, until it serves again. False where it does not survive that, as happens to one of forty: 24.10
        and its steps have each waited in vain for what the other said.
        """
        peer = self.tritons[at].peer
        peer.resume()
        back, ended = asyncio.create_task(self.until(at, serves="noop")), asyncio.create_task(peer.ended())
        done, waiting = await asyncio.wait((back, ended), return_when=asyncio.FIRST_COMPLETED)
        for task in waiting:
            task.cancel()
        if back in done:
            await back
        return back in done

    @asynccontextmanager
    async def load(self, callers: int = 8, model: str = "noop", text: str = CANARY, pause: float = 0) -> AsyncIterator[Load]:
        load = Load(self.gateway, pause=pause)
        tasks = [asyncio.create_task(load.caller(model, text)) for _ in range(callers)]
        await asyncio.sleep(0.3)
        yield load
        load.stopped = True
        await asyncio.gather(*tasks)
