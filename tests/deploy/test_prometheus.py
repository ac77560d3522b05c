"""A real Prometheus scrapes gateways and a Triton under traffic: every panel and every rule has something to show."""

import asyncio
import contextlib
import re
import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest
import pytest_asyncio

from app.local.address import Address
from app.local.part import Part
from app.local.watchdog import Watchdog
from tests.conftest import ROOT
from tests.deploy.dashboards import dashboards
from tests.deploy.test_rules import RULES, alerts, filled
from tests.fakes.otlp import listening
from tests.fakes.triton import FakeTriton, aborting
from tests.gateway.process import RunningGateway
from tests.gateway.stage import STAGED, staged_models
from tests.gateway.tenants import Tenants
from tests.peers import Peer, Redis, Served

pytestmark = pytest.mark.deploy

SHADOWED = {"limits": {"requests_per_second": 0.01, "burst": 1, "enforce": {"requests": False}}}
LIMITED = {"limits": {"requests_per_second": 0.1, "burst": 1}}
ENTRIES: dict[str, dict[str, Any]] = {"open": {}, "shadowed": SHADOWED, "limited": LIMITED}

NOTHING = {
    "GPU utilisation": "there is no GPU here",
    "GPU memory": "there is no GPU here",
    "GPU power": "there is no GPU here",
    "Certificates": "TLS is tried in tests/telemetry/test_metrics.py",
    "Issuers of tokens": "tokens are tried in tests/gateway/test_tokens.py",
}
"""Panels without data in this test, and why."""
UNSEEN = {"conch_certificate_expires_seconds", "conch_jwks_failures"}

CONFIG = """
global: {{scrape_interval: 1s, evaluation_interval: 1s}}
rule_files: ["{rules}/*.yaml"]
scrape_configs:
  - {{job_name: conch, static_configs: [{{targets: [{conch}]}}]}}
  - {{job_name: triton, static_configs: [{{targets: [{triton}]}}]}}
"""


@dataclass(frozen=True, slots=True)
class Prometheus:
    client: httpx.AsyncClient

    @classmethod
    async def start(cls, folder: Path, watchdog: Watchdog, conch: list[str], triton: str) -> "tuple[Prometheus, Peer]":
        program = shutil.which("prometheus")
        assert program is not None
        (folder / "rules").mkdir()
        for rules in RULES:
            (folder / "rules" / rules.name).write_text(re.sub(r"interval: \d+s", "interval: 1s", rules.read_text()))
        written = CONFIG.format(rules=folder / "rules", conch=", ".join(conch), triton=triton)
        (folder / "prometheus.yaml").write_text(written)
        address = Address.free()
        client = httpx.AsyncClient(base_url=address.url, trust_env=False)

        async def is_ready() -> bool:
            with contextlib.suppress(httpx.HTTPError):
                return (await client.get("/-/ready")).is_success
            return False

        options = (f"--config.file={folder / 'prometheus.yaml'}", f"--storage.tsdb.path={folder / 'data'}")
        command = (program, *options, f"--web.listen-address={address}", "--enable-feature=exemplar-storage")
        peer = Peer(Part("prometheus", command, {}, folder, is_ready, within=60, grace=5), folder / "prometheus.log", watchdog)
        await peer.start()
        return cls(client), peer

    async def ask(self, path: str, **query: str) -> Any:
        answer = await self.client.get(f"/api/v1/{path}", params=query)
        assert answer.status_code == 200, answer.text
        return answer.json()["data"]

    async def shows(self, expr: str) -> bool:
        return bool((await self.ask("query", query=expr))["result"])

    async def blank(self, exprs: dict[str, str]) -> set[str]:
        """Those that show nothing."""
        return {name for name, expr in exprs.items() if not await self.shows(expr)}

    async def soon(self, exprs: dict[str, str]) -> None:
        """Within a minute each shows something."""
        blank = set(exprs)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(60):
                while blank := await self.blank({name: exprs[name] for name in blank}):
                    await asyncio.sleep(1)
        assert blank == set()


async def traffic(real: RunningGateway, failing: RunningGateway) -> None:
    """A bit of everything."""
    lines = b'{"text": "a line"}\n' * 3
    while True:
        for model in ("sentiment", "topics", "language"):
            await real.classify("hello", "there", model=model)
        await asyncio.gather(*(real.classify("all at once", model="sentiment") for _ in range(8)))
        await real.classify(*["a part"] * 70, model="language")
        await real.classify("over its limit", tenant="limited", model="language")
        await real.classify("would be over it", tenant="shadowed", model="language")
        await real.classify("", model="sentiment")
        await real.client.get("/v1/models")
        headers = {"content-type": "application/x-ndjson", **real.tenants.authorization("open")}
        await real.client.post("/v1/bulk/classify?model=language", content=lines, headers=headers)
        await failing.classify("fails somewhere", model="words")
        await failing.classify("fails everywhere", model="brief")
        await asyncio.sleep(0.5)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def prometheus(
    triton: Served, redis: Redis, watchdog: Watchdog, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Prometheus]:
    if shutil.which("prometheus") is None:
        pytest.skip("NOT TESTED: no prometheus here. As root, on Debian 12: apt install --no-install-recommends prometheus")
    folder = tmp_path_factory.mktemp("prometheus")
    tenants = Tenants.write(folder / "tenants.yaml", ENTRIES)
    (folder / "routes.yaml").write_text(STAGED)
    async with AsyncExitStack() as stack:
        ill, well = [await stack.enter_async_context(FakeTriton.serving(staged_models())) for _ in range(2)]
        ill.behaviours["words"] = aborting(grpc.StatusCode.UNAVAILABLE, "model 'words' is not ready")
        for fake in (ill, well):
            fake.behaviours["brief"] = aborting(grpc.StatusCode.INTERNAL, "no")
        sink = stack.enter_context(listening())
        shared = {"CONCH_REDIS_URL": redis.url, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": sink.url}
        gateways = []
        for name, tritons, routes in (
            ("real", triton.grpc, ROOT / "config" / "routes.yaml"),
            ("failing", f"{ill.address},{well.address}", folder / "routes.yaml"),
        ):
            (folder / name).mkdir()
            own = {**shared, "CONCH_TRITON": tritons, "CONCH_ROUTES_FILE": str(routes)}
            gateways.append(await RunningGateway.start(tenants, own, folder / name, watchdog))
            stack.push_async_callback(gateways[-1].stop)
        admins = [gateway.admin.removeprefix("http://") for gateway in gateways]
        prometheus, peer = await Prometheus.start(folder, watchdog, admins, triton.metrics)
        stack.push_async_callback(peer.stop)
        stack.push_async_callback(prometheus.client.aclose)
        asking = asyncio.create_task(traffic(*gateways))
        stack.callback(asking.cancel)
        yield prometheus


async def test_every_panel_shows_something(prometheus: Prometheus) -> None:
    panels = [panel for dashboard in dashboards() for panel in dashboard.panels]
    assert {panel.title for panel in panels} >= NOTHING.keys()
    await prometheus.soon(
        {
            f"{panel.title}: {legend}": filled(expr, "15s")
            for panel in panels
            for legend, expr in panel.queries.items()
            if panel.title not in NOTHING
        }
    )


async def test_every_rule_works_and_every_recording_has_a_value(prometheus: Prometheus) -> None:
    rules = [rule for group in (await prometheus.ask("rules"))["groups"] for rule in group["rules"]]
    assert {rule["name"] for rule in rules if rule["health"] == "err"} == set()
    await prometheus.soon({rule["name"]: rule["name"] for rule in rules if rule["type"] == "recording"})


async def test_every_alert_reads_series_that_there_are_by_labels_that_they_have(prometheus: Prometheus) -> None:
    await prometheus.soon({selector: selector for selector in selectors()})


def selectors() -> Iterator[str]:
    """Each metric of an alert, with every label that the alert asks it for present."""
    for alert in alerts():
        for name, matchers in re.findall(r"\b((?:conch|nv)[_:][\w:]+|up)(?:\{([^}]*)\})?", str(alert["expr"])):
            if name not in UNSEEN:
                yield name + "{" + ",".join(f'{label}!=""' for label in re.findall(r"(\w+)(?:=~?|!=)", matchers)) + "}"


async def test_a_point_of_a_graph_leads_to_its_trace(prometheus: Prometheus) -> None:
    async with asyncio.timeout(30):
        while not (
            found := await prometheus.ask("query_exemplars", query="conch_request_seconds_bucket", start="0", end="9e9")
        ):
            await asyncio.sleep(1)
    assert re.fullmatch(r"[0-9a-f]{32}", found[0]["exemplars"][0]["labels"]["trace_id"])


async def test_the_wait_that_tritons_are_scaled_by_is_that_of_the_slowest_member(prometheus: Prometheus) -> None:
    def value(data: Any) -> float:
        return float(data["result"][0]["value"][1])

    await prometheus.soon({"scaled by": "conch_triton_member_queue_seconds > 0"})
    ensembles = "sum(rate(nv_inference_queue_duration_us{model=~'sentiment|topics|language'}[1m])) / 1e6"
    members = "sum(rate(nv_inference_queue_duration_us{model!~'sentiment|topics|language'}[1m])) / 1e6"
    assert value(await prometheus.ask("query", query=ensembles)) < value(await prometheus.ask("query", query=members)) / 10
