"""Callers who leave while Triton computes, thousands of them: what they leave behind in the gateway.

    python tests/load/storm.py [20000]

Ends with 1 where the gateway grew by more than 50 MB, or where anything is still held when all have left: a request, a berth or
a lease in Redis. Who left while the gateway was behind still stands in the listening socket's queue, 2,048 of them at most, and
is met afterwards, a few at a time: on a busy machine for 5 to 11 seconds.
"""

import asyncio
import os
import sys
import tempfile
from pathlib import Path
from time import monotonic

import psutil
import redis.asyncio as client

from app.local.address import Address
from app.local.watchdog import Watchdog
from tests.fakes.triton import FakeTriton, model, never
from tests.gateway.process import RunningGateway
from tests.gateway.tenants import TENANTS, Tenants
from tests.load.callers import post
from tests.peers import Redis

CALLERS, WARM_UP, MOST_MB, PATIENCE = 100, 2_000, 50, 60
ROUTES = "routes: {noop: {task: classify, targets: [{ensemble: noop}], labels: [a, b, c], required: true}}\n"


async def storm(address: Address, request: bytes, leaves: int) -> None:
    """Each caller comes, waits until its request has had time to reach Triton, and goes."""
    left = iter(range(leaves))

    async def caller() -> None:
        for _ in left:
            _, writer = await asyncio.open_connection(address.host, address.port)
            writer.write(request)
            await asyncio.sleep(0.03)
            writer.transport.abort()

    await asyncio.gather(*(caller() for _ in range(CALLERS)))


async def held(gateway: RunningGateway, store: Redis) -> dict[str, float]:
    """What the gateway and Redis count of requests that have not ended."""
    async with client.Redis.from_url(store.url) as connection:
        leases = sum([await connection.zcard(key) for key in await connection.keys("conch:*:in_flight")])
    requests, berths = [await gateway.count(name) for name in ("conch_requests_in_flight", "conch_berths_taken")]
    return {"requests": requests, "berths": berths, "leases": leases}


async def run(leaves: int) -> int:
    folder = Path(tempfile.mkdtemp(prefix="conch-storm-"))
    (folder / "routes.yaml").write_text(ROUTES)
    tenants = Tenants.write(folder / "tenants.yaml", {**TENANTS, "leaving": {"limits": {"in_flight": 10_000}}})
    models = {"noop": model("noop", {"SCORES": ("FP32", (3,))})}
    with Watchdog() as watchdog:
        redis = await Redis.start(folder, watchdog)
        async with FakeTriton.serving(models) as fake:
            settings = {
                "CONCH_TRITON": fake.address,
                "CONCH_REDIS_URL": redis.url,
                "CONCH_ROUTES_FILE": str(folder / "routes.yaml"),
                "CONCH_ACCESS_LOG": "false",
            }
            inherited = {name: os.environ.pop(name) for name in list(os.environ) if name.startswith("OTEL_")}
            gateway = await RunningGateway.start(tenants, settings, folder, watchdog)
            os.environ.update(inherited)
            process = psutil.Process(gateway.peer.pid)
            body = b'{"model":"noop","inputs":["gone before it is answered"],"timeout_ms":10000}'
            request = post("/v1/classify", tenants.keys["leaving"], body)
            fake.behaviours["noop"] = never
            await storm(gateway.address, request, WARM_UP)
            before, started = process.memory_info().rss, monotonic()
            await storm(gateway.address, request, leaves)
            ended = monotonic()
            gone, rest = 0.0, {"requests": 1.0}
            while (gone < WARM_UP + leaves or any(rest.values())) and monotonic() < ended + PATIENCE:
                await asyncio.sleep(1)
                gone, rest = await gateway.count("conch_requests_total", status="499"), await held(gateway, redis)
            met = monotonic()
            fake.behaviours.clear()
            grown = (process.memory_info().rss - before) / 1e6
            reached = await gateway.count("conch_triton_calls_total", outcome="cancelled")
            answer = await gateway.classify("well?", tenant="single")
            print(f"{leaves} callers left in {ended - started:.0f} s; {met - ended:.0f} s later {gone:.0f} were counted")
            print(f"as 499 and {reached:.0f} calls cancelled, warm-up included; the gateway grew by {grown:.1f} MB;")
            print(f"{', '.join(f'{count:.0f} {what}' for what, count in rest.items())} held; then {answer.status_code}")
            await gateway.stop()
        await redis.peer.stop()
    return int(grown > MOST_MB or any(rest.values()) or answer.status_code != 200)


if __name__ == "__main__":
    sys.exit(asyncio.run(run(int(sys.argv[1]) if len(sys.argv) > 1 else 20_000)))
