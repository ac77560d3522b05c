"""A gateway as it is run: a process of its own, on free ports."""

import asyncio
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from ssl import SSLContext
from typing import Any

import httpx
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from app.local.address import Address
from app.local.health import TRUSTS_NOBODY
from app.local.part import Part, Run
from app.local.watchdog import Watchdog
from app.telemetry.logs import HELD_SECONDS
from tests import forks
from tests.gateway.tenants import Tenants
from tests.peers import Peer

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class RunningGateway:
    """`client` carries no key: a test says who calls."""

    address: Address
    admin: str
    peer: Peer
    tenants: Tenants
    client: httpx.AsyncClient

    @classmethod
    async def start(
        cls,
        tenants: Tenants,
        settings: Mapping[str, str],
        folder: Path,
        watchdog: Watchdog,
        ready: str = "/readyz",
        tls: SSLContext | None = None,
        anew: bool = False,
    ) -> "RunningGateway":
        """`tls` is the client's, where both listeners have certificates; `anew` is with an interpreter of its own, as people
        start it, and not by a fork."""
        listen, admin = Address.several_free(2)
        api, private = (address.url.replace("http", "https" if tls else "http") for address in (listen, admin))
        client = httpx.AsyncClient(base_url=api, verify=tls or TRUSTS_NOBODY, trust_env=False, timeout=30)

        async def is_ready() -> bool:
            try:
                return (await client.get(ready)).is_success
            except httpx.HTTPError:
                return False

        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("CONCH_", "OTEL_"))}
        own = {"CONCH_LISTEN": str(listen), "CONCH_ADMIN_LISTEN": str(admin), "CONCH_TENANTS_FILE": str(tenants.path)}
        own["CONCH_AUTH_FAILURES_PER_SECOND"] = "1000"  # many tests fail on purpose, all from one address
        part = Part(
            name="gateway",
            command=(sys.executable, "-m", "app.cli", "serve"),
            environment={**inherited, **own, **settings},
            directory=ROOT,
            is_ready=is_ready,
            within=60,
            grace=10,
        )
        peer = Peer(part, folder / "gateway.log", watchdog, Run.start if anew else forks.run)
        gateway = cls(listen, private, peer, tenants, client)
        await peer.start()
        return gateway

    async def stop(self) -> None:
        await self.client.aclose()
        await self.peer.stop()

    async def post(self, path: str, body: Any, tenant: str = "open", **options: Any) -> httpx.Response:
        headers = {**self.tenants.authorization(tenant), **options.pop("headers", {})}
        return await self.client.post(path, json=body, headers=headers, **options)

    async def classify(self, *texts: str, tenant: str = "open", model: str = "noop", **more: Any) -> httpx.Response:
        return await self.post("/v1/classify", {"model": model, "inputs": list(texts), **more}, tenant)

    async def get(self, path: str, tenant: str = "open") -> httpx.Response:
        return await self.client.get(path, headers=self.tenants.authorization(tenant))

    async def status(self) -> dict[str, Any]:
        answer = await self.client.get(f"{self.admin}/status")
        assert answer.status_code == 200
        return dict(answer.json())

    async def faults(self, route: str) -> str:
        return " | ".join((await self.status())["routes"][route]["faults"])

    async def count(self, name: str, **labels: str) -> float:
        """The sum of a metric's samples that have these labels."""
        return sum(
            sample.value
            for sample in await self.samples(name)
            if sample.name == name and all(sample.labels.get(label) == value for label, value in labels.items())
        )

    async def samples(self, name: str = "") -> list[Sample]:
        """Those whose names begin so; to parse them all takes long."""
        lines = (await self.client.get(f"{self.admin}/metrics")).text.splitlines()
        text = "\n".join(line for line in lines if line.startswith(name))
        return [sample for family in text_string_to_metric_families(f"{text}\n") for sample in family.samples]

    def log(self) -> str:
        """What it has written; the lines of requests come a moment later."""
        return self.peer.log.read_text()

    async def logged(self) -> str:
        """With the line of every request that has been answered."""
        await asyncio.sleep(2 * HELD_SECONDS)
        return self.log()


async def conch(*arguments: str, stdin: str = "", **environment: str) -> tuple[int, str, str]:
    """The command line as people run it: its exit code, and what it says on each stream."""
    return await forks.call(arguments, {**os.environ, **environment}, ROOT, stdin)
