"""The table of routes while the world changes: files, models, endpoints."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio

from tests.fakes.triton import REMARKS, FakeTriton, model
from tests.gateway.problems import CANARY, assert_problem
from tests.gateway.process import RunningGateway
from tests.peers import Redis

ROUTE = "  {name}: {{task: classify, targets: [{{ensemble: {ensemble}}}], labels: [a, b, c]}}\n"
SCORES = {"SCORES": ("FP32", (3,)), **REMARKS}
MISMATCHING = {
    "dtype": (model("dtype", {"SCORES": ("INT32", (3,))}), "is INT32 [3]"),
    "output": (model("output", REMARKS), "there is no output SCORES"),
    "decoupled": (model("decoupled", SCORES, decoupled=True), "decoupled"),
    "batch": (model("batch", SCORES, max_batch=0), "does not batch"),
    "labels": (model("labels", {"SCORES": ("FP32", (4,))}), "3 labels for 4 scores"),
    "input": (model("input", SCORES, inputs={"QUERY": ("BYTES", (1,))}), "there is no input TEXT"),
}


@dataclass
class House:
    gateway: RunningGateway
    fakes: tuple[FakeTriton, FakeTriton]
    routes: Path

    async def becomes(self, model: str, status: int) -> None:
        async with asyncio.timeout(15):
            while (await self.gateway.classify(CANARY, model=model)).status_code != status:
                await asyncio.sleep(0.05)


def chart(**routes: str) -> str:
    return "routes:\n" + "".join(ROUTE.format(name=name, ensemble=ensemble) for name, ensemble in routes.items())


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def house(
    gateways: Callable[..., Awaitable[RunningGateway]], redis: Redis, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[House]:
    models = {"good": model("good", SCORES), "other": model("other", SCORES)} | {
        name: config for name, (config, _) in MISMATCHING.items()
    }
    routes = tmp_path_factory.mktemp("routes") / "routes.yaml"
    routes.write_text(chart(good="good", **{name: name for name in MISMATCHING}))
    async with FakeTriton.serving(models) as first, FakeTriton.serving(models) as second:
        addresses = f"{first.address},{second.address}"
        gateway = await gateways(TRITON=addresses, REDIS_URL=redis.url, ROUTES_FILE=str(routes))
        yield House(gateway, (first, second), routes)
        await gateway.stop()


@pytest.mark.parametrize("name", MISMATCHING)
async def test_a_route_that_does_not_fit_is_unavailable_and_the_admin_is_told_why(house: House, name: str) -> None:
    assert_problem(await house.gateway.classify(CANARY, model=name), 503, "model_unavailable")
    assert MISMATCHING[name][1] in await house.gateway.faults(name)
    assert f"route {name} can't be served" in house.gateway.log()
    listed = {card["id"]: card["available"] for card in (await house.gateway.get("/v1/models")).json()["data"]}
    assert (listed[name], listed["good"]) == (False, True)


async def test_the_routes_are_read_again_when_they_change_and_a_bad_file_changes_nothing(house: House) -> None:
    gateway, good = house.gateway, house.routes.read_text()
    assert_problem(await gateway.classify(CANARY, model="added"), 404, "unknown_model")
    house.routes.write_text(good + ROUTE.format(name="added", ensemble="other"))
    await house.becomes("added", 200)

    failures = (await gateway.status())["files"]["routes"]["failures"]
    house.routes.write_text(good + "  broken: {task: nothing}\n")
    async with asyncio.timeout(10):
        while (await gateway.status())["files"]["routes"]["failures"] == failures:
            await asyncio.sleep(0.05)
    assert (await gateway.classify(CANARY, model="added")).status_code == 200
    assert "routes not reloaded" in gateway.log()
    assert "routes.broken.task" in (await gateway.status())["files"]["routes"]["refused"]
    await refused(gateway, 1)

    house.routes.write_text(good)
    await house.becomes("added", 404)
    assert (await gateway.status())["files"]["routes"]["refused"] == ""
    await refused(gateway, 0)


async def refused(gateway: RunningGateway, value: int) -> None:
    """What an alert looks at, which follows within a second."""
    async with asyncio.timeout(10):
        while await gateway.count("conch_config_refused", file="routes") != value:
            await asyncio.sleep(0.05)


async def test_a_model_that_one_endpoint_unloads_is_served_by_the_other(house: House) -> None:
    first, second = house.fakes
    for fake in house.fakes:
        fake.forget()
    first.ready["good"] = False
    async with asyncio.timeout(10):
        while "good is not ready" not in await house.gateway.faults("good"):
            await asyncio.sleep(0.05)
    for _ in range(10):
        assert (await house.gateway.classify(CANARY, model="good")).status_code == 200
    assert (len(first.asked), len(second.asked)) == (0, 10)
    second.ready["good"] = False
    await house.becomes("good", 503)
    assert_problem(await house.gateway.classify(CANARY, model="good"), 503, "model_unavailable")
    first.forget()
    second.forget()
    await house.becomes("good", 200)


async def test_an_endpoint_that_dies_costs_no_caller_anything(house: House) -> None:
    first, _ = house.fakes
    await house.becomes("good", 200)
    await first.stop()
    for _ in range(30):
        assert (await house.gateway.classify(CANARY, model="good")).status_code == 200
    await first.start()
    async with asyncio.timeout(10):
        while not all(endpoint["reachable"] for endpoint in (await house.gateway.status())["endpoints"]):
            await asyncio.sleep(0.05)
