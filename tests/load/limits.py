"""What tenants cost by their number, and what a Redis that says nothing costs: `python tests/load/limits.py`.

Memory is the gateway's RSS. Times are those of one caller, as it sees them: read the differences.
"""

import asyncio
import tempfile
from pathlib import Path
from statistics import median

import psutil

from app.local.watchdog import Watchdog
from app.tenancy.key import digest
from tests.fakes.triton import REMARKS, FakeTriton, model
from tests.gateway.process import RunningGateway
from tests.gateway.tenants import Tenants
from tests.load.callers import Load, drive, post
from tests.peers import Redis

FEW, MANY = 10, 10_000
ROUTES = "routes: {noop: {task: classify, targets: [{ensemble: noop}], labels: [a, b, c], required: true}}\n"
ENTRIES = {"caller": {"limits": {"requests_per_second": 100_000, "in_flight": 1000}}}
BODY = b'{"model":"noop","inputs":["a"]}'


def add(file: Path, start: int, stop: int) -> None:
    with file.open("a") as stream:
        for number in range(start, stop):
            keys = ", ".join(f'{{id: k{at}, sha256: "{digest(b"%d-%d" % (number, at)).hex()}"}}' for at in range(2))
            stream.write(f'  t-{number}: {{plan: plain, models: ["*"], keys: [{keys}]}}\n')


async def of_caller(gateway: RunningGateway, requests: int = 400, callers: int = 1) -> Load:
    load = await drive(
        str(gateway.address), post("/v1/classify", gateway.tenants.keys["caller"], BODY), callers=callers, requests=requests
    )
    if load.failures:
        raise SystemExit(f"{load.failures} of {requests} answers were not 200")
    return load


async def by_number(gateway: RunningGateway) -> None:
    process, file = psutil.Process(gateway.peer.pid), gateway.tenants.path

    async def figures() -> tuple[float, float]:
        before = process.cpu_times()
        await of_caller(gateway, 3000, callers=16)
        after = process.cpu_times()
        return process.memory_info().rss / 1e6, (after.user + after.system - before.user - before.system) / 3000 * 1e6

    await of_caller(gateway)
    few = await figures()
    add(file, FEW, MANY)
    during: list[float] = []
    while (await gateway.status())["files"]["tenants"]["generation"] == 1:
        during += (await of_caller(gateway, 50)).latencies
    many = await figures()
    print(
        f"{MANY:,} tenants instead of {FEW}: {many[0] - few[0]:+.0f} MB RSS, {few[1]:.0f} and {many[1]:.0f} µs CPU per request"
    )
    told = f"median {median(during) * 1e3:.1f} ms, longest {max(during) * 1e3:.0f} ms"
    print(f"while they are read: {len(during)} requests, none failed, {told}")


async def without_redis(gateway: RunningGateway, redis: Redis) -> None:
    well = median((await of_caller(gateway)).latencies)
    redis.peer.pause()
    first = (await of_caller(gateway, 20)).latencies
    while (await gateway.status())["limiter"] == "exact":
        first += (await of_caller(gateway, 1)).latencies
    then = median((await of_caller(gateway)).latencies)
    redis.peer.resume()
    slowest, others = (max(first) - well) * 1e3, (then - well) * 1e3
    print(f"Redis silent: {slowest:+.1f} ms on the slowest of the first requests, {others:+.2f} ms on the others")


async def main() -> None:
    folder = Path(tempfile.mkdtemp(prefix="conch-limits-"))
    (folder / "routes.yaml").write_text(ROUTES)
    tenants = Tenants.write(folder / "tenants.yaml", ENTRIES)
    add(tenants.path, 0, FEW)
    with Watchdog() as watchdog:
        redis = await Redis.start(folder, watchdog)
        async with FakeTriton.serving({"noop": model("noop", {"SCORES": ("FP32", (3,)), **REMARKS})}) as fake:
            settings = {
                "CONCH_TRITON": fake.address,
                "CONCH_REDIS_URL": redis.url,
                "CONCH_ROUTES_FILE": str(folder / "routes.yaml"),
            }
            gateway = await RunningGateway.start(tenants, settings, folder, watchdog)
            await by_number(gateway)
            await without_redis(gateway, redis)
            await gateway.stop()
        await redis.peer.stop()


if __name__ == "__main__":
    asyncio.run(main())
