"""What the survey finds, look by look."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest_asyncio

from app.routing.chart import read_chart
from app.routing.survey import Survey
from app.triton.client import ChannelOptions, Endpoint
from app.triton.discovery import Roster
from tests.fakes.triton import REMARKS, FakeTriton, model

SCORES = {"SCORES": ("FP32", (3,)), **REMARKS}
OTHER = {"SCORES": ("FP64", (3,)), **REMARKS}
ROUTES = """
routes:
  r: {task: classify, targets: [{ensemble: m}], labels: [a, b, c], required: true}
  canary: {task: classify, targets: [{ensemble: m, weight: 3}, {ensemble: n, weight: 1}], labels: [a, b, c]}
"""


@dataclass
class Scene:
    fakes: tuple[FakeTriton, FakeTriton]
    survey: Survey

    async def look(self, times: int = 1) -> None:
        for _ in range(times):
            await self.survey.look()

    def served(self, route: str = "r") -> list[tuple[str, int]]:
        return [(ensemble.name, weight) for ensemble, weight in self.survey.table.servings[route].ensembles]

    def faults(self, route: str = "r") -> str:
        return " | ".join(self.survey.table.servings[route].faults)

    def where(self, name: str = "m") -> list[int]:
        return [at for at, endpoint in enumerate(self.survey.roster.endpoints) if name in endpoint.health.serving]


@pytest_asyncio.fixture(loop_scope="session")
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    file = tmp_path / "routes.yaml"
    file.write_text(ROUTES)
    models = {"m": model("m", SCORES)}
    async with FakeTriton.serving(models) as first, FakeTriton.serving(models) as second:
        roster = Roster((first.address, second.address), lambda address, name: Endpoint(address, ChannelOptions()))
        await roster.refresh()
        yield Scene((first, second), Survey(file, read_chart(file), roster))
        await roster.close()


async def test_nothing_is_served_before_the_first_look(scene: Scene) -> None:
    assert not scene.served()
    assert not scene.survey.ready
    await scene.look()
    assert scene.served() == [("m", 100)]
    assert scene.survey.ready
    assert scene.where() == [0, 1]


async def test_of_two_targets_the_one_that_is_there_is_served(scene: Scene) -> None:
    await scene.look()
    assert scene.served("canary") == [("m", 3)]
    assert "n is not ready" in scene.faults("canary")
    for fake in scene.fakes:
        fake.models["n"] = model("n", SCORES)
    await scene.look()
    assert scene.served("canary") == [("m", 3), ("n", 1)]
    assert not scene.faults("canary")


async def test_a_model_that_differs_between_endpoints_is_served_by_one_of_them_only(scene: Scene) -> None:
    scene.fakes[1].models["m"] = model("m", OTHER)
    await scene.look()
    assert scene.where() == [0]
    assert "differs from the other endpoints'" in scene.faults()
    scene.fakes[1].models["m"] = model("m", SCORES)
    await scene.look(10)
    assert scene.where() == [0, 1]
    assert not scene.faults()


async def test_a_model_that_no_longer_fits_is_noticed_while_it_says_it_is_ready(scene: Scene) -> None:
    await scene.look()
    for fake in scene.fakes:
        fake.models["m"] = model("m", {"SCORES": ("INT32", (3,))})
    await scene.look(10)
    assert not scene.served()
    assert "is INT32 [3]" in scene.faults()


async def test_readiness_latches_though_nothing_is_left(scene: Scene) -> None:
    await scene.look()
    for fake in scene.fakes:
        await fake.stop()
    await scene.look()
    assert scene.survey.ready
    assert not scene.served()
    assert scene.faults().count("can't be reached") == 2


async def test_an_endpoint_that_comes_back_with_another_model_is_looked_at_anew(scene: Scene) -> None:
    await scene.look()
    await scene.fakes[1].stop()
    await scene.look()
    assert scene.where() == [0]
    scene.fakes[1].models["m"] = model("m", OTHER)
    await scene.fakes[1].start()
    while not scene.survey.roster.endpoints[1].health.reachable:
        await scene.look()
    assert scene.where() == [0]
