"""Rolling restarts of gateways and of Tritons, side by side and again and again, while callers never pause.

    python tests/load/rolling.py [--rounds 100] [--callers 4] [--drain 3]

Two gateways, each restarted by SIGTERM in its turn, behind a balancer that looks at /readyz five times a second, keeps
connections alive and heeds `Connection: close`; and two real Tritons, with the small models of tests/repository/noop*, each
stopped by SIGTERM while it is busy. One round restarts all four, gateways and Tritons at the same time. Ends with 1 where a
request failed. Of one that was sent to a gateway after its `--drain` was over, it says so: no balancer may be as late as that.
"""

import asyncio
import itertools
import os
import shutil
import signal
import sys
import tempfile
from collections import Counter
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic

import click
import httpx

from app.local.address import Address
from app.local.triton import install
from app.local.watchdog import Watchdog
from tests.gateway.process import ROOT, RunningGateway
from tests.gateway.tenants import Tenants
from tests.load.callers import post
from tests.peers import Redis, Triton, eventually

ROUTES = "routes: {noop: {task: classify, targets: [{ensemble: noop}], required: true}}\n"
BODY = b'{"model":"noop","inputs":["on and on"]}'
LOOK, PAUSE, SETTLE = 0.2, 0.02, 4.0
"""Seconds between two looks at a gateway, between a caller's answer and its next request, and from a Triton's being ready until
the next one is stopped, as `minReadySeconds` is for Kubernetes: within two or three, every gateway has noticed."""


@dataclass
class Balancer:
    """Sends to those that were ready when it last looked, in turn."""

    request: bytes
    drain: float
    """Seconds for which a gateway that was told to end goes on serving."""
    gateways: list[RunningGateway] = field(default_factory=list)
    ready: list[RunningGateway] = field(default_factory=list)
    told: dict[Address, float] = field(default_factory=dict)
    """When each was told to end."""
    outcomes: Counter[str] = field(default_factory=Counter)
    over: bool = False

    async def look(self) -> None:
        while not self.over:
            there = list(self.gateways)
            looked = await asyncio.gather(*map(_is_ready, there))
            self.ready = [gateway for gateway, well in zip(there, looked, strict=True) if well]
            await asyncio.sleep(LOOK)

    async def call(self) -> None:
        """One caller, with a connection to each gateway that it keeps while it may."""
        lines: dict[Address, tuple[asyncio.StreamReader, asyncio.StreamWriter]] = {}
        for turn in itertools.count():
            if self.over:
                return
            address = self.ready[turn % len(self.ready)].address
            sent = monotonic()
            try:
                if address not in lines:
                    lines[address] = await asyncio.open_connection(address.host, address.port)
                sent = monotonic()
                again = await self._ask(*lines[address])
            except (OSError, asyncio.IncompleteReadError) as error:
                again = False
                late = sent - self.told.get(address, sent) > self.drain
                self.outcomes[f"{type(error).__name__}{', sent after the drain' if late else ''}"] += 1
            if not again and address in lines:
                lines.pop(address)[1].close()
            await asyncio.sleep(PAUSE)

    async def _ask(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Whether the connection may be used again."""
        writer.write(self.request)
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        length = next(line for line in head.split(b"\r\n") if line.startswith(b"content-length:"))
        body = await reader.readexactly(int(length.split(b":")[1]))
        status = int(head.split()[1])
        self.outcomes["ok" if status == 200 else f"{status} {body.decode()}"] += 1
        return b"connection: close" not in head

    @property
    def failures(self) -> int:
        return self.outcomes.total() - self.outcomes["ok"]


async def _is_ready(gateway: RunningGateway) -> bool:
    try:
        return (await gateway.client.get("/readyz")).is_success
    except httpx.HTTPError:
        return False


@dataclass
class Scene:
    """`folder` holds a log of each process, the last of its kind."""

    folder: Path
    tenants: Tenants
    watchdog: Watchdog
    redis: Redis
    tritons: tuple[Triton, Triton]
    balancer: Balancer

    async def gateway(self) -> RunningGateway:
        settings = {
            "CONCH_TRITON": ",".join(triton.grpc for triton in self.tritons),
            "CONCH_REDIS_URL": self.redis.url,
            "CONCH_ROUTES_FILE": str(self.folder / "routes.yaml"),
            "CONCH_DRAIN_DELAY_SECONDS": str(self.balancer.drain),
            "CONCH_ACCESS_LOG": "false",
        }
        return await RunningGateway.start(self.tenants, settings, self.folder, self.watchdog)

    async def roll_gateways(self) -> None:
        gateways = self.balancer.gateways
        for leaving in list(gateways):
            ended = asyncio.create_task(leaving.peer.ended())
            self.balancer.told[leaving.address] = monotonic()
            os.kill(leaving.peer.pid, signal.SIGTERM)
            if (how := await ended) != "exit status 0":
                raise SystemExit(f"a gateway ended with {how}")
            gateways.remove(leaving)
            await leaving.stop()
            gateways.append(await self.gateway())
            await eventually(lambda: len(self.balancer.ready) == 2)

    async def roll_tritons(self) -> None:
        for triton in self.tritons:
            await triton.peer.stop(grace=20)
            await triton.peer.start()
            await asyncio.sleep(SETTLE)


async def run(rounds: int, callers: int, drain: float) -> int:
    folder = Path(tempfile.mkdtemp(prefix="conch-rolling-"))
    (folder / "routes.yaml").write_text(ROUTES)
    for model in ("noop", "noop-head", "noop-tokenizer"):
        shutil.copytree(ROOT / "tests" / "repository" / model, folder / "models" / model)
    tenants = Tenants.write(folder / "tenants.yaml", {"open": {}})
    installation = install(Path(os.environ.get("CONCH_HOME", ".conch")).resolve())
    async with AsyncExitStack() as stack:
        watchdog = stack.enter_context(Watchdog())
        redis = await Redis.start(folder, watchdog)
        stack.push_async_callback(redis.peer.stop)
        tritons = [await Triton.start(installation, [folder / "models"], folder / at, watchdog) for at in ("one", "two")]
        for triton in tritons:
            stack.push_async_callback(triton.peer.kill)
        balancer = Balancer(post("/v1/classify", tenants.keys["open"], BODY), drain)
        scene = Scene(folder, tenants, watchdog, redis, (tritons[0], tritons[1]), balancer)
        for _ in range(2):
            balancer.gateways.append(await scene.gateway())
        started = monotonic()
        async with asyncio.TaskGroup() as group:
            group.create_task(balancer.look())
            await eventually(lambda: len(balancer.ready) == 2)
            for _ in range(callers):
                group.create_task(balancer.call())
            for at in range(1, rounds + 1):
                await asyncio.gather(scene.roll_gateways(), scene.roll_tritons())
                print(f"round {at}: {balancer.outcomes.total()} requests, {balancer.failures} failed", flush=True)
            balancer.over = True
        for gateway in balancer.gateways:
            await gateway.stop()
    print(f"{rounds} rounds in {monotonic() - started:.0f} s: {balancer.outcomes.total()} requests, {balancer.failures} failed")
    for outcome, count in balancer.outcomes.most_common():
        print(f"{count:>8} {outcome}")
    return int(balancer.failures > 0)


@click.command()
@click.option("--rounds", default=100, show_default=True)
@click.option("--callers", default=4, show_default=True)
@click.option(
    "--drain", default=3.0, show_default=True, help="Far longer than the balancer needs: a busy machine may stall it."
)
def main(rounds: int, callers: int, drain: float) -> None:
    sys.exit(asyncio.run(run(rounds, callers, drain)))


if __name__ == "__main__":
    main()
