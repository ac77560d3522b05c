"""A file of a million lines through `conch bulk`, and the most memory that the gateway and the command took for it.

    python tests/load/bulk.py [1000000]

The model computes nothing, so that what is measured is the gateway and the command. Ends with 1 where the gateway took more
than 150 MB, or where a line of the output is missing.
"""

import asyncio
import contextlib
import os
import sys
import tempfile
from pathlib import Path
from time import monotonic

import psutil

from app.local.watchdog import Watchdog
from tests.fakes.triton import FakeTriton, model
from tests.gateway.process import ROOT, RunningGateway
from tests.gateway.tenants import Tenants
from tests.peers import Redis

MOST_MB = 150
ROUTES = "routes: {noop: {task: classify, targets: [{ensemble: noop}], labels: [a, b, c], required: true}}\n"
TEXT = "I absolutely love this phone, the battery lasts for days! "


def write(path: Path, lines: int) -> None:
    with path.open("w") as file:
        file.writelines(f'{{"id": "{at}", "text": "{TEXT * (at % 4 + 1)}"}}\n' for at in range(lines))


async def watch(process: psutil.Process, fake: FakeTriton, over: asyncio.Event) -> tuple[float, float]:
    """The most megabytes, and the seconds of CPU."""
    most, before, spent = 0.0, sum(process.cpu_times()[:2]), 0.0
    while not over.is_set():
        with contextlib.suppress(psutil.NoSuchProcess):
            most, spent = max(most, process.memory_info().rss / 1e6), sum(process.cpu_times()[:2]) - before
        fake.asked.clear()
        await asyncio.sleep(0.2)
    return most, spent


async def run(lines: int) -> int:
    with tempfile.TemporaryDirectory(prefix="conch-bulk-") as name, Watchdog() as watchdog:
        folder = Path(name)
        (folder / "routes.yaml").write_text(ROUTES)
        write(folder / "lines.ndjson", lines)
        tenants = Tenants.write(folder / "tenants.yaml")
        redis = await Redis.start(folder, watchdog)
        async with FakeTriton.serving({"noop": model("noop", {"SCORES": ("FP32", (3,))})}) as fake:
            settings = {
                "CONCH_TRITON": fake.address,
                "CONCH_REDIS_URL": redis.url,
                "CONCH_ROUTES_FILE": str(folder / "routes.yaml"),
            }
            gateway = await RunningGateway.start(tenants, settings, folder, watchdog)
            before = psutil.Process(gateway.peer.pid).memory_info().rss / 1e6
            environment = {**os.environ, "CONCH_URL": gateway.address.url, "CONCH_KEY": tenants.keys["open"]}
            command = (sys.executable, "-m", "app.cli", "bulk", str(folder / "lines.ndjson"), "--model", "noop")
            over, started = asyncio.Event(), monotonic()
            process = await asyncio.create_subprocess_exec(*command, cwd=ROOT, env=environment)
            watched = (psutil.Process(gateway.peer.pid), psutil.Process(process.pid))
            watches = [asyncio.create_task(watch(of, fake, over)) for of in watched]
            code = await process.wait()
            took = monotonic() - started
            over.set()
            (ours, ours_cpu), (theirs, theirs_cpu) = [await watch for watch in watches]
            await gateway.stop()
        await redis.peer.stop()
        with (folder / "lines.noop.ndjson").open("rb") as output:
            written = sum(1 for _ in output)
    print(f"{written} lines in {took:.0f} s, {written / took:.0f} a second; exit code {code}")
    print(f"the gateway took {before:.0f} MB before, {ours:.0f} MB at most, and {ours_cpu / lines * 1e6:.0f} µs of CPU a line;")
    print(f"conch bulk {theirs:.0f} MB at most, and {theirs_cpu / lines * 1e6:.0f} µs")
    return int(code != 0 or written != lines or ours > MOST_MB)


if __name__ == "__main__":
    sys.exit(asyncio.run(run(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000)))
