"""Run by test_no_network.py in a network of its own, with a way out that counts what leaves and leads nowhere.

A gateway is started there as it is in production, over a Triton and without a Redis, and asked once. Then one packet is sent on
purpose: a count that can't count shows nothing.
"""

import asyncio
import os
import re
import socket
import subprocess
import sys
import tempfile
from asyncio.subprocess import DEVNULL
from pathlib import Path

import httpx

from tests.fakes.triton import FakeTriton
from tests.gateway.stage import STAGED, staged_models
from tests.gateway.tenants import Tenants
from tests.triton.own_network import bind_resolver

HERE, AWAY = "192.0.2.1", "192.0.2.53"
WAY_OUT = (
    "link set lo up",
    "link add out0 type veth peer name out1",
    f"addr add {HERE}/24 dev out0",
    "link set out1 up",
    "link set out0 up",
    f"route add default via {AWAY}",
)


def furnish() -> None:
    for device in ("all", "default"):  # or the kernel itself would ask its neighbours
        Path(f"/proc/sys/net/ipv6/conf/{device}/disable_ipv6").write_text("1")
    for line in WAY_OUT:
        subprocess.run(("ip", *line.split()), check=True)
    bind_resolver(AWAY)


def sent() -> int:
    """Packets that went for the way out."""
    return int(re.findall(r"out0: +(?:\d+ +){9}(\d+)", Path("/proc/net/dev").read_text())[0])


async def main() -> None:
    furnish()
    before = sent()
    with tempfile.TemporaryDirectory() as folder:
        tenants = Tenants.write(Path(folder) / "tenants.yaml")
        routes = Path(folder) / "routes.yaml"
        routes.write_text(STAGED)
        async with FakeTriton.serving(staged_models()) as triton:
            settings = {
                "CONCH_TRITON": triton.address,
                "CONCH_REDIS_URL": "redis://127.0.0.1:1",
                "CONCH_TENANTS_FILE": str(tenants.path),
                "CONCH_ROUTES_FILE": str(routes),
            }
            others = {name: value for name, value in os.environ.items() if not name.startswith(("CONCH_", "OTEL_"))}
            command = (sys.executable, "-m", "app.cli", "serve")
            gateway = await asyncio.create_subprocess_exec(*command, env={**others, **settings}, stdout=DEVNULL)
            try:
                await _ask(tenants)
            finally:
                gateway.terminate()
                await gateway.wait()
    gone = sent() - before
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as line:
        line.sendto(b"away", (AWAY, 9))
    while sent() == before + gone:
        await asyncio.sleep(0.01)
    sys.stdout.write(f"{gone} packets wanted to leave\n")


async def _ask(tenants: Tenants) -> None:
    async with asyncio.timeout(60), httpx.AsyncClient(base_url="http://127.0.0.1:8080", trust_env=False) as client:
        while True:
            try:
                if (await client.get("/readyz")).is_success:
                    break
            except httpx.TransportError:
                pass
            await asyncio.sleep(0.1)
        body = {"model": "words", "inputs": ["a"]}
        answer = await client.post("/v1/classify", json=body, headers=tenants.authorization("open"))
        assert answer.status_code == 200, answer.text
        for page in ("/docs", "/redoc", "/openapi.json", "/docs/redoc.standalone.js"):
            assert (await client.get(page)).status_code == 200


if __name__ == "__main__":
    asyncio.run(main())
