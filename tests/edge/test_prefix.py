"""Behind an ingress that publishes the gateway under a path of its own, whether it takes the path off or leaves it on."""

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from urllib.parse import urljoin

import pytest
import pytest_asyncio

from tests.fakes.triton import FakeTriton
from tests.gateway.problems import assert_problem
from tests.gateway.process import RunningGateway
from tests.peers import Redis

ROOT = "/team/conch"


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def prefixed(
    gateways: Callable[..., Awaitable[RunningGateway]], _stage: FakeTriton, redis: Redis, staged_routes: Path
) -> AsyncIterator[RunningGateway]:
    settings = {"TRITON": _stage.address, "REDIS_URL": redis.url, "ROUTES_FILE": str(staged_routes)}
    gateway = await gateways(**settings, ROOT_PATH=ROOT)
    yield gateway
    await gateway.stop()


@pytest.mark.parametrize("root", ["", ROOT])
async def test_every_path_is_the_same_with_it_and_without(prefixed: RunningGateway, root: str) -> None:
    assert (await prefixed.client.get(f"{root}/livez")).status_code == 200
    answer = await prefixed.post(f"{root}/v1/classify", {"model": "words", "inputs": ["a"]})
    assert answer.status_code == 200
    assert (await prefixed.get(f"{root}/v1/models/words")).json()["id"] == "words"
    assert await prefixed.count("conch_requests_total", route="/v1/models/{model}", status="200") >= 1


SECRET = ["/v1/models", "//v1/models", "/docs/../v1/models", f"{ROOT}/v1/models", "/docs/%2e%2e/v1/models"]


@pytest.mark.parametrize("path", SECRET)
async def test_a_stranger_comes_no_further_than_without_it(prefixed: RunningGateway, path: str) -> None:
    answer = await prefixed.client.get(f"{prefixed.address.url}{ROOT}{path}")
    assert answer.status_code in (401, 404)
    assert "vectors" not in answer.text


async def test_it_is_taken_off_once_and_only_whole(prefixed: RunningGateway) -> None:
    for path in (f"{ROOT}{ROOT}/v1/models", f"{ROOT}s/v1/models", "/team/v1/models"):
        assert_problem(await prefixed.get(path), 404, "not_found")


async def test_the_document_and_the_pages_lead_back_under_it(prefixed: RunningGateway) -> None:
    assert (await prefixed.client.get(f"{ROOT}/openapi.json")).json()["servers"] == [{"url": ROOT}]
    for path in (ROOT, f"{ROOT}/"):
        location = (await prefixed.client.get(path)).headers["location"]
        assert urljoin(path, location) == f"{ROOT}/docs"
    page = (await prefixed.client.get(f"{ROOT}/problems/invalid_input")).text
    assert 'href="../docs/docs.css"' in page
