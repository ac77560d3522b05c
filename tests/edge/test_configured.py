"""The rules of the edge that are settings: hosts, origins and compression."""

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
import pytest_asyncio

from tests.edge.raw import connected, head
from tests.fakes.triton import FakeTriton
from tests.gateway.problems import CANARY, assert_problem
from tests.gateway.process import RunningGateway
from tests.peers import Redis

ORIGIN = "https://app.example.com"


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def configured(
    gateways: Callable[..., Awaitable[RunningGateway]], redis: Redis, staged_routes: Path, _stage: FakeTriton
) -> AsyncIterator[RunningGateway]:
    gateway = await gateways(
        TRITON=_stage.address,
        REDIS_URL=redis.url,
        ROUTES_FILE=str(staged_routes),
        ALLOWED_HOSTS="conch.example.com,127.0.0.1,[::1]",
        ALLOWED_ORIGINS=f"{ORIGIN},http://localhost:3000",
        GZIP_MIN_BYTES="0",
    )
    yield gateway
    await gateway.stop()


HOSTS = {
    "conch.example.com": 401,
    "CONCH.example.com:8443": 401,
    "127.0.0.1:1": 401,
    "[::1]": 401,
    "[::1]:80": 401,
    "example.com": 400,
    "other.conch.example.com": 400,
    "conch.example.com.": 400,
    "[::2]:80": 400,
}


@pytest.mark.parametrize(("host", "status"), HOSTS.items())
async def test_only_hosts_of_the_list_are_served(configured: RunningGateway, host: str, status: int) -> None:
    async with connected(configured.address) as line:
        await line.send(head("GET /v1/models", host=host))
        assert (await line.answer()).status_code == status


async def test_a_kubelet_may_ask_by_any_address(configured: RunningGateway) -> None:
    for path in ("/livez", "/readyz"):
        async with connected(configured.address) as line:
            await line.send(head(f"GET {path}", host="10.1.2.3:8080"))
            assert (await line.answer()).status_code == 200


async def test_who_names_no_host_is_not_served_where_there_is_a_list(configured: RunningGateway) -> None:
    async with connected(configured.address) as line:
        await line.send(head("GET /v1/models", host=None).replace(b"HTTP/1.1", b"HTTP/1.0"))
        assert_problem(await line.answer(), 400, "malformed_request")


PREFLIGHT = {"access-control-request-method": "POST", "access-control-request-headers": "authorization,content-type"}


async def test_a_page_of_a_known_origin_may_ask_and_read(configured: RunningGateway) -> None:
    asked = await configured.client.options("/v1/classify", headers={"origin": ORIGIN, **PREFLIGHT})
    assert (asked.status_code, asked.headers["access-control-allow-origin"]) == (204, ORIGIN)
    assert "POST" in asked.headers["access-control-allow-methods"]
    assert asked.headers["access-control-allow-headers"] == "authorization,content-type"
    assert "access-control-allow-credentials" not in asked.headers
    for tenant, status in (("open", 200), ("scopeless", 403)):
        body = {"model": "words", "inputs": ["a"]}
        answer = await configured.post("/v1/classify", body, tenant, headers={"origin": ORIGIN})
        assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (status, ORIGIN)
        assert "x-request-id" in answer.headers["access-control-expose-headers"]
        assert "origin" in answer.headers["vary"]


@pytest.mark.parametrize("origin", ["https://evil.example.com", f"{ORIGIN}.evil.com", "null", "", ORIGIN.upper(), "*", CANARY])
async def test_a_page_of_another_origin_is_told_nothing(configured: RunningGateway, origin: str) -> None:
    headers = {"origin": origin, **PREFLIGHT}
    for answer in (
        await configured.client.options("/v1/classify", headers=headers),
        await configured.client.get("/livez", headers=headers),
    ):
        assert answer.status_code in (200, 204)
        assert not [name for name in answer.headers if name.startswith("access-control")]
        assert "origin" in answer.headers["vary"], "or a cache would give it to a page of ours"


@pytest.mark.parametrize("names", ["a b", "x\x7f", "x" * 65, ",".join(["a"] * 33), "*", ""])
async def test_names_of_headers_that_are_none_are_not_repeated(configured: RunningGateway, names: str) -> None:
    headers = {"origin": ORIGIN, **PREFLIGHT, "access-control-request-headers": names}
    answer = await configured.client.options(
        "/v1/classify", headers=[(name.encode(), value.encode()) for name, value in headers.items()]
    )
    assert answer.headers.get("access-control-allow-headers") is None


async def test_compression_can_be_switched_off(configured: RunningGateway) -> None:
    answer = await configured.client.get("/openapi.json", headers={"accept-encoding": "gzip"})
    assert "content-encoding" not in answer.headers
