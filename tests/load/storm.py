"""Callers who leave while Triton computes, thousands of them: what they leave behind in the gateway.

    python tests/load/storm.py [20000]

Ends with 1 where the gateway grew by more than 50 MB, or where anything is still held when all have left.
"""

import asyncio
import os
import sys
import tempfile
from pathlib import Path
from time import monotonic

import psutil

from app.local.address import Address
from app.local.watchdog import Watchdog
from tests.fakes.triton import FakeTriton, model, never
from tests.gateway.process import RunningGateway
from tests.gateway.tenants import Tenants
from tests.load.callers import post
from tests.peers import Redis

CALLERS, WARM_UP, MOST_MB = 100, 2_000, 50
ROUTES = "routes: {noop: {task: classify, targets: [{ensemble: noop}], labels: [a, b, c], required: true}}\n"


async def storm(address: Address, request: bytes, leaves: int, fake: FakeTriton) -> None:
    """Each caller comes, waits until its request has had time to reach Triton, and goes."""
    left = iter(range(leaves))

    async def caller() -> None:
        for _ in left:
            _, writer = await asyncio.open_connection(address.host, address.port)
            writer.write(request)
            await asyncio.sleep(0.03)
            writer.transport.abort()

    await asyncio.gather(*(caller() for _ in range(CALLERS)))


async def run(leaves: int) -> int:
    folder = Path(tempfile.mkdtemp(prefix="conch-storm-"))
    (folder / "routes.yaml").write_text(ROUTES)
    tenants = Tenants.write(folder / "tenants.yaml")
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
            request = post("/v1/classify", tenants.keys["open"], body)
            fake.behaviours["noop"] = never
            await storm(gateway.address, request, WARM_UP, fake)
            before, started = process.memory_info().rss, monotonic()
            await storm(gateway.address, request, leaves, fake)
            took = monotonic() - started
            fake.behaviours.clear()
            await asyncio.sleep(12)  # berths of abandoned calls may be kept for a while
            for _ in range(30):  # a busy gateway may not have met the last callers yet, who left while they stood in line
                if not await gateway.count("conch_requests_in_flight"):
                    break
                await asyncio.sleep(1)
            grown = (process.memory_info().rss - before) / 1e6
            reached = await gateway.count("conch_triton_calls_total", outcome="cancelled")
            in_flight = await gateway.count("conch_requests_in_flight")
            gone = await gateway.count("conch_requests_total", status="499")
            answer = await gateway.classify("well?", tenant="single")
            print(f"{leaves} callers left in {took:.0f} s; {gone:.0f} were counted as 499 and {reached:.0f} calls cancelled,")
            print(f"warm-up included; the gateway grew by {grown:.1f} MB; {in_flight:.0f} in flight; then {answer.status_code}")
            await gateway.stop()
        await redis.peer.stop()
    return int(grown > MOST_MB or in_flight > 0 or answer.status_code != 200)


if __name__ == "__main__":
    sys.exit(asyncio.run(run(int(sys.argv[1]) if len(sys.argv) > 1 else 20_000)))
