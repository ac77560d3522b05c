"""Whoever is over the limit and goes on asking is told the same as by the long way, and nobody else is."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.edge.echo import Echo
from app.telemetry.exchange import Exchange
from app.telemetry.tracing import Tracing
from tests.edge.raw import Line, connected, head
from tests.fakes.otlp import listening
from tests.fakes.triton import FakeTriton
from tests.gateway.problems import assert_problem
from tests.gateway.process import RunningGateway
from tests.gateway.tenants import Tenants
from tests.peers import Redis, eventually

BODY = b'{"model":"words","inputs":["a"]}'
LENGTH = f"Content-Length: {len(BODY)}"
JSON = "Content-Type: application/json"
LONG_WAY = "X-Something: 1"
FLOODING = {"limits": {"requests_per_second": 0.01, "burst": 1}}
OWN = {"x-request-id", "server-timing", "content-length", "date"}


def asked(gateway: RunningGateway, *fields: str, tenant: str = "flooding", request: str = "POST /v1/classify") -> bytes:
    return head(request, f"Authorization: Bearer {gateway.tenants.keys[tenant]}", JSON, LENGTH, *fields) + BODY


def is_echo(answer: httpx.Response) -> bool:
    """Nobody looked up whose key it is: that takes longer than 5 microseconds."""
    return answer.status_code == 429 and answer.headers["server-timing"].startswith("auth;dur=0.00,")


async def flood(gateway: RunningGateway, line: Line) -> httpx.Response:
    """Asks until the answer is told again, and gives that."""
    async with asyncio.timeout(10):
        while True:
            await line.send(asked(gateway))
            answer = await line.answer()
            if is_echo(answer):
                return answer


async def test_the_same_is_told_as_by_the_long_way(staged: RunningGateway) -> None:
    async with connected(staged.address) as line:
        echo = await flood(staged, line)
        await line.send(asked(staged, LONG_WAY))
        answer = await line.answer()
    assert not is_echo(answer)
    assert_problem(echo, 429, "rate_limited")
    for headers in (echo.headers, answer.headers):
        headers["retry-after"] = headers["ratelimit"] = "soon"  # a second may have gone by
    assert {name: value for name, value in echo.headers.items() if name not in OWN} == {
        name: value for name, value in answer.headers.items() if name not in OWN
    }
    assert {**echo.json(), "request_id": ""} == {**answer.json(), "request_id": ""}
    assert echo.json()["request_id"] == echo.headers["x-request-id"] != answer.headers["x-request-id"]


async def test_each_is_counted_and_has_its_line(staged: RunningGateway) -> None:
    counted: tuple[tuple[str, dict[str, str]], ...] = (
        ("conch_requests_total", {"route": "/v1/classify", "status": "429", "code": "rate_limited"}),
        ("conch_limiter_decisions_total", {"decision": "rate_limited", "mode": "memory"}),
        ("conch_request_seconds_count", {"route": "/v1/classify"}),
    )
    async with connected(staged.address) as line:
        await flood(staged, line)
        before = [await staged.count(name, **labels) for name, labels in counted]
        await line.send(b"".join(asked(staged, f"X-Request-Id: echo-{at}") for at in range(40)))
        answers = await line.answers(40)
    assert [answer.headers["x-request-id"] for answer in answers] == [f"echo-{at}" for at in range(40)]
    assert sum(map(is_echo, answers)) >= 38, "who it is may have been looked up once in between"
    assert [await staged.count(name, **labels) for name, labels in counted] == [count + 40 for count in before]
    told = (await staged.logged()).splitlines()
    assert all(sum(f'"request_id":"echo-{at}"' in line for line in told) == 1 for at in range(40))


OTHERS = {
    "another key": ("POST /v1/classify", "tight-for-echo", (), 200),
    "another path": ("POST /v1/nothing", "flooding", (), 404),
    "another query": ("POST /v1/classify?a=b", "flooding", (), 429),
    "another method": ("PUT /v1/classify", "flooding", (), 405),
    "two credentials": ("POST /v1/classify", "flooding", ("X-API-Key: another",), 401),
    "the state of a trace": ("POST /v1/classify", "flooding", ("tracestate: a=1",), 429),
    "a page of another origin": ("POST /v1/classify", "flooding", ("Origin: https://other.example",), 429),
    "patience": ("POST /v1/classify", "flooding", ("Expect: 100-continue",), 429),
    "a coding": ("POST /v1/classify", "flooding", ("Content-Encoding: br",), 415),
}


@pytest.mark.parametrize(("request_line", "tenant", "fields", "status"), OTHERS.values(), ids=OTHERS)
async def test_whoever_asks_something_else_goes_the_long_way(
    staged: RunningGateway, stage: FakeTriton, request_line: str, tenant: str, fields: tuple[str, ...], status: int
) -> None:
    async with connected(staged.address) as line:
        await flood(staged, line)
        await line.send(asked(staged, *fields, tenant=tenant, request=request_line))
        answer = await line.answer()
    assert (answer.status_code, is_echo(answer)) == (status, False)


async def test_a_body_beyond_the_cap_is_too_large_as_ever(staged: RunningGateway) -> None:
    async with connected(staged.address) as line:
        await flood(staged, line)
        await line.send(asked(staged).replace(LENGTH.encode(), b"Content-Length: 10000000"))
        assert_problem(await line.answer(), 413, "too_large")


async def test_the_connection_goes_on_behind_a_body_that_comes_late(staged: RunningGateway, stage: FakeTriton) -> None:
    async with connected(staged.address) as line:
        await flood(staged, line)
        request = asked(staged)
        for cut in (len(request) - len(BODY), len(request) - 5):
            await line.send(request[:cut])
            answer = await line.answer()
            assert is_echo(answer)
            await asyncio.sleep(0.05)
            await line.send(request[cut:] + asked(staged, LONG_WAY))
            assert (await line.answer()).status_code == 429


async def test_a_body_that_never_comes_ends_the_connection(staged: RunningGateway) -> None:
    async with connected(staged.address) as line:
        await flood(staged, line)
        await line.send(asked(staged)[: -len(BODY)])
        assert is_echo(await line.answer())
        assert await line.is_closed()


@pytest.mark.parametrize("ending", [("HTTP/1.1", "Connection: close"), ("HTTP/1.0", "X-Nothing: 1")])
async def test_who_wants_to_be_hung_up_on_is(staged: RunningGateway, ending: tuple[str, str]) -> None:
    version, field = ending
    async with connected(staged.address) as line:
        await flood(staged, line)
        await line.send(asked(staged, field).replace(b"HTTP/1.1", version.encode()))
        assert (await line.answer()).status_code == 429
        assert await line.is_closed()


async def test_a_limit_that_was_lifted_and_a_key_that_was_revoked_are_seen_while_the_flood_goes_on(
    start_gateway: Callable[..., Awaitable[RunningGateway]],
    stage: FakeTriton,
    redis: Redis,
    staged_routes: Path,
    tmp_path: Path,
) -> None:
    tenants = Tenants.write(tmp_path / "tenants.yaml", {"lifted": FLOODING, "revoked": FLOODING})
    files = {"ROUTES_FILE": str(staged_routes), "TENANTS_FILE": str(tenants.path)}
    gateway = await start_gateway(TRITON=stage.address, REDIS_URL=redis.url, **files)

    async def ends(tenant: str, status: int, then: Mapping[str, dict[str, Any]]) -> None:
        """The flood of a tenant, once the file says something else of it."""
        request = asked(gateway, tenant="open").replace(gateway.tenants.keys["open"].encode(), tenants.keys[tenant].encode())
        async with connected(gateway.address) as line, asyncio.timeout(8):
            answers: list[httpx.Response] = []
            while not answers or answers[-1].status_code != status or not any(map(is_echo, answers)):
                await line.send(request)
                answers.append(await line.answer())
                if is_echo(answers[-1]) and not any(map(is_echo, answers[:-1])):
                    tenants.rewrite(then)
                await asyncio.sleep(0.001)

    await ends("lifted", 200, {"lifted": {}, "revoked": FLOODING})
    await ends("revoked", 401, {"lifted": {}})


async def test_each_is_a_trace_of_its_own(
    start_gateway: Callable[..., Awaitable[RunningGateway]], stage: FakeTriton, redis: Redis, staged_routes: Path
) -> None:
    with listening() as sink:
        otel = {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": sink.url, "OTEL_BSP_SCHEDULE_DELAY": "100"}
        gateway = await start_gateway(TRITON=stage.address, REDIS_URL=redis.url, ROUTES_FILE=str(staged_routes), **otel)
        traces = [f"{at:032x}" for at in range(1, 5)]
        async with connected(gateway.address) as line:
            await flood(gateway, line)
            for trace in traces:
                await line.send(asked(gateway, f"traceparent: 00-{trace}-{'b' * 16}-01"))
                assert is_echo(await line.answer())
        await eventually(lambda: all(sink.of(trace) for trace in traces))
        for trace in traces:
            [span] = sink.of(trace).values()
            assert (span.name, span.parent) == ("POST /v1/classify", "b" * 16)
            assert (span.attributes["conch.code"], span.attributes["conch.tenant"]) == ("rate_limited", "flooding")


def test_while_draining_nothing_is_told_again() -> None:
    told: list[str] = []
    draining = False
    echo = Echo(100, lambda: draining, Tracing(None), lambda exchange, method, status: told.append(exchange.request_id))
    headers = [(b"authorization", b"Bearer k"), (b"content-length", b"9")]
    scope = {"headers": headers, "path": "/v1/classify", "state": {"target": b"/v1/classify"}}
    asked_for: list[int] = []

    def recall(most: int) -> None:
        asked_for.append(most)

    echo.keep(scope, Exchange("r"), recall, ())
    assert echo.answer(b"/v1/classify", headers, ()) is None
    assert asked_for == [9]
    draining = True
    assert echo.answer(b"/v1/classify", headers, ()) is None
    assert (asked_for, told) == ([9], [])
