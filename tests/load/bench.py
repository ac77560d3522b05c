"""CPU per request of the gateway, beside the handler that one writes first, in one run on the same Triton and Redis; then what
single duties cost, and what the gateway leaves of the throughput of a model that is the bottleneck.

Times on a shared machine are noise: read the ratios, and the CPU microseconds of the gateway's own process. `make bench`.
"""

import asyncio
import contextlib
import os
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import httpx
import psutil

from app.local.address import Address
from app.local.triton import install
from app.local.watchdog import Watchdog
from app.tenancy.key import new_key
from tests.load import bottleneck, overhead
from tests.load.callers import Load, drive, post
from tests.peers import Redis, Triton

ROUNDS, REQUESTS, CALLERS = 4, 3_000, 32
BODY = b'{"model":"noop","inputs":["I absolutely love this phone, the battery lasts for days!"]}'
ROUTES = "routes: {noop: {task: classify, targets: [{ensemble: noop}], required: true}}\n"
TENANTS = """
plans:
  wide: {{requests_per_second: 1000000, characters_per_minute: 2000000000, in_flight: 1000}}
  narrow: {{requests_per_second: 1, burst: 1}}
tenants:
  acme: {{plan: wide, models: ["*"], scopes: [infer], keys: [{{id: bench, sha256: "{wide}"}}]}}
  tiny: {{plan: narrow, models: ["*"], scopes: [infer], keys: [{{id: tiny, sha256: "{narrow}"}}]}}
"""


@dataclass
class Case:
    name: str
    address: str
    process: psutil.Process
    request: bytes
    refused: bool = False
    spent: list[float] = field(default_factory=list)
    load: Load | None = None

    async def run(self) -> None:
        """One round; raises where an answer was not what the case is about."""
        before = self.process.cpu_times()
        self.load = await drive(self.address, self.request, callers=CALLERS, requests=REQUESTS)
        after = self.process.cpu_times()
        if self.load.failures < REQUESTS * 0.9 if self.refused else self.load.failures:
            raise SystemExit(f"{self.name}: {self.load.failures} of {REQUESTS} answers were not 200")
        self.spent.append((after.user + after.system - before.user - before.system) / REQUESTS * 1e6)

    def row(self, unit: float) -> str:
        assert self.load is not None
        cpu = median(self.spent)
        rss = self.process.memory_info().rss / 1e6
        return f"{self.name:<34}{cpu:>10.0f}{cpu / unit:>9.2f}{self.load.requests / self.load.seconds:>9.0f}{rss:>9.0f}"


@asynccontextmanager
async def process(*arguments: str, environment: dict[str, str], log: Path) -> AsyncIterator[psutil.Process]:
    with log.open("wb") as output:
        running = await asyncio.create_subprocess_exec(
            sys.executable, *arguments, env={**os.environ, **environment}, stdout=output, stderr=output
        )
    try:
        yield psutil.Process(running.pid)
    finally:
        running.terminate()
        await running.wait()


async def ready(address: str) -> None:
    async with asyncio.timeout(30), httpx.AsyncClient() as client:
        while True:
            with contextlib.suppress(httpx.HTTPError):
                await client.get(f"http://{address}/readyz")
                return
            await asyncio.sleep(0.05)


def serving(folder: Path, listen: str, admin: str, triton: Triton, redis: Redis) -> dict[str, str]:
    """What a gateway is told, with the routes and tenants that are in the folder."""
    return {
        "CONCH_TRITON": triton.grpc,
        "CONCH_REDIS_URL": redis.url,
        "CONCH_LISTEN": listen,
        "CONCH_ADMIN_LISTEN": admin,
        "CONCH_ROUTES_FILE": str(folder / "routes.yaml"),
        "CONCH_TENANTS_FILE": str(folder / "tenants.yaml"),
    }


def _uvicorn(module: str, address: str) -> tuple[str, ...]:
    host, _, port = address.rpartition(":")
    return "-m", "uvicorn", f"tests.load.{module}:app", "--host", host, "--port", port, "--no-access-log"


async def main() -> None:
    folder = Path(tempfile.mkdtemp(prefix="conch-bench-"))
    (wide, wide_digest), (narrow, narrow_digest) = new_key("bench", "bench"), new_key("bench", "tiny")
    (folder / "routes.yaml").write_text(ROUTES)
    (folder / "tenants.yaml").write_text(TENANTS.format(wide=wide_digest, narrow=narrow_digest))
    home = Path(os.environ.get("CONCH_HOME", ".conch")).resolve()
    gateway, admin, naive, bare = (str(Address.free()) for _ in range(4))
    with Watchdog() as watchdog:
        triton = await Triton.start(install(home), [Path("tests/repository").resolve()], folder, watchdog)
        redis = await Redis.start(folder, watchdog)
        environment = {**serving(folder, gateway, admin, triton, redis), "NAIVE_KEY_SHA256": wide_digest}
        async with (
            process("-m", "app.cli", "serve", environment=environment, log=folder / "gateway.log") as ours,
            process(*_uvicorn("naive", naive), environment=environment, log=folder / "naive.log") as theirs,
            process(*_uvicorn("bare", bare), "--lifespan=off", environment=environment, log=folder / "bare.log") as least,
        ):
            await asyncio.gather(ready(gateway), ready(naive), ready(bare))
            cases = [
                Case("gateway: classify, no-op ensemble", gateway, ours, post("/v1/classify", wide, BODY)),
                Case("naive FastAPI + tritonclient", naive, theirs, post("/v1/classify", wide, BODY)),
                Case("gateway: over its limit, 429", gateway, ours, post("/v1/classify", narrow, BODY), refused=True),
                Case("bare uvicorn: always a 429", bare, least, post("/v1/classify", narrow, BODY), refused=True),
                Case("gateway: a stranger, 401", gateway, ours, post("/v1/classify", "nobody", BODY), refused=True),
            ]
            for case in cases:
                await drive(case.address, case.request, callers=CALLERS, requests=300)
            for _ in range(ROUNDS):
                for case in cases:
                    await case.run()
            print(f"{'':<34}{'CPU µs':>10}{'ratio':>9}{'req/s':>9}{'RSS MB':>9}")
            for case in cases:
                print(case.row(median(cases[0].spent)))
        await triton.peer.kill()
        await redis.peer.stop()
    print(f"median of {ROUNDS} rounds of {REQUESTS} requests from {CALLERS} callers; ratio: to the first line")


if __name__ == "__main__":
    asyncio.run(main())
    print()
    overhead.main()
    print()
    asyncio.run(bottleneck.main())
