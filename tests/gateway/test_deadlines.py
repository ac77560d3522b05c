"""Time: a budget that is kept, and callers who leave before it is over."""

import asyncio
from time import monotonic
from typing import Any

import pytest

from tests.edge.raw import connected, head
from tests.fakes.triton import FakeTriton, never
from tests.gateway.problems import CANARY, assert_problem
from tests.gateway.process import RunningGateway


async def test_a_real_model_that_is_too_slow_is_a_504_in_time(gateway: RunningGateway) -> None:
    took = []
    for _ in range(3):
        await gateway.classify(CANARY, model="sleepy")  # waits until it is free
        asked = monotonic()
        answer = await gateway.classify("0.6", model="sleepy", timeout_ms=300)
        took.append(monotonic() - asked)
        assert_problem(answer, 504, "deadline_exceeded")
    assert 0.3 <= min(took) < 0.4, "a busy machine only adds to it"


async def test_what_is_left_of_the_budget_goes_out_as_deadline_and_as_triton_s_timeout(
    staged: RunningGateway, stage: FakeTriton
) -> None:
    await staged.classify(CANARY, model="words", timeout_ms=9000)
    [asked] = [asked for asked in stage.asked if asked.texts == [CANARY.encode()]]  # and no probe
    timeout = asked.request.parameters["timeout"].int64_param
    assert 7_000_000 < timeout <= 9_000_000
    assert asked.remaining is not None
    assert 7 < asked.remaining <= 9.1, "gRPC rounds it up"


@pytest.mark.parametrize(("given", "seconds"), [({}, 2), ({"timeout_ms": 900_000}, 10)], ids=["none", "more than all"])
async def test_the_route_says_how_long_a_request_may_take(
    staged: RunningGateway, stage: FakeTriton, given: dict[str, Any], seconds: int
) -> None:
    await staged.classify(CANARY, model="words", **given)
    timeout = stage.asked[0].request.parameters["timeout"].int64_param
    assert seconds - 1 < timeout / 1_000_000 <= seconds


HEADERS = [("700", {}, 0.7), ("700", {"timeout_ms": 1500}, 1.5), ("99999", {}, 10)]


@pytest.mark.parametrize(("header", "members", "seconds"), HEADERS, ids=["alone", "beside the member", "more than all"])
async def test_a_header_may_give_the_budget_where_the_body_does_not(
    staged: RunningGateway, stage: FakeTriton, header: str, members: dict[str, Any], seconds: float
) -> None:
    body = {"model": "words", "inputs": [CANARY], **members}
    await staged.post("/v1/classify", body, headers={"x-request-timeout-ms": header})
    timeout = stage.asked[0].request.parameters["timeout"].int64_param
    assert seconds - 0.5 < timeout / 1_000_000 <= seconds


@pytest.mark.parametrize("header", ["0", "-1", "1.5", "1e3", "abc", "9" * 30, "\u0663"])
async def test_a_header_that_gives_no_budget_is_malformed(staged: RunningGateway, header: str) -> None:
    key = ("authorization", f"Bearer {staged.tenants.keys['open']}".encode())
    fields = [key, ("content-type", b"application/json"), ("x-request-timeout-ms", header.encode())]
    answer = await staged.client.post(
        "/v1/classify", content=b'{"model":"words","inputs":["a"]}', headers=[(name.encode(), value) for name, value in fields]
    )
    assert_problem(answer, 400, "malformed_request")


@pytest.mark.parametrize(("tenant", "priority"), [("open", 2), ("first", 1)])
async def test_the_tenant_s_priority_goes_out(staged: RunningGateway, stage: FakeTriton, tenant: str, priority: int) -> None:
    await staged.classify(CANARY, model="words", tenant=tenant)
    assert stage.asked[0].request.parameters["priority"].uint64_param == priority


async def test_the_request_id_goes_out(staged: RunningGateway, stage: FakeTriton) -> None:
    answer = await staged.classify(CANARY, model="words")
    assert stage.asked[0].request.id == answer.headers["x-request-id"]


@pytest.mark.parametrize("model", ["words", "brief"])
async def test_when_the_caller_leaves_triton_is_told_and_everything_is_given_back(
    staged: RunningGateway, stage: FakeTriton, model: str
) -> None:
    stage.behaviours[model] = never
    before = await staged.count("conch_requests_total", status="499", code="client_closed")
    body = b'{"model":"%s","inputs":["%s"],"timeout_ms":9000}' % (model.encode(), CANARY.encode())
    fields = (f"X-API-Key: {staged.tenants.keys['single']}", "Content-Type: application/json", f"Content-Length: {len(body)}")
    async with connected(staged.address) as line:
        await line.send(head("POST /v1/classify", *fields) + body)
        await stage.arrived.wait()
    async with asyncio.timeout(0.2):
        await stage.cancelled.wait()
    stage.behaviours.clear()
    async with asyncio.timeout(5):
        while await staged.count("conch_requests_total", status="499", code="client_closed") != before + 1:
            await asyncio.sleep(0.02)
    # `single` has one slot in flight, and `brief` one berth.
    assert (await staged.classify(CANARY, model=model, tenant="single")).status_code == 200
    assert await staged.count("conch_triton_calls_total", outcome="cancelled", ensemble=model) >= 1
    assert '"code":"client_closed"' in await staged.logged()


async def test_when_the_caller_of_many_parts_leaves_every_part_is_cancelled(staged: RunningGateway, stage: FakeTriton) -> None:
    stage.behaviours["brief"] = never
    before = await staged.count("conch_triton_calls_total", outcome="cancelled", ensemble="brief")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.3):
            await staged.classify(*[CANARY] * 40, model="brief", timeout_ms=9000)
    async with asyncio.timeout(5):
        while await staged.count("conch_triton_calls_total", outcome="cancelled", ensemble="brief") < before + 4:
            await asyncio.sleep(0.02)
    assert len(stage.asked) == 4, "four at once, and none after that"
