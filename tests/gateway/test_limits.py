"""Limits, from one end to the other: gateway, script, Redis."""

import asyncio
import math
import re
from time import monotonic

import grpc.aio
from tritonclient.grpc import service_pb2 as pb

from tests.fakes.triton import FakeTriton, never
from tests.gateway.problems import CANARY, assert_problem
from tests.gateway.process import RunningGateway


async def test_a_tenant_without_limits_sees_no_limit_headers(staged: RunningGateway) -> None:
    answer = await staged.classify(CANARY, model="words")
    assert answer.status_code == 200
    assert not {"ratelimit", "ratelimit-policy", "retry-after", "conch-limiter"} & answer.headers.keys()


async def test_an_answer_tells_the_policy_and_what_is_left(staged: RunningGateway) -> None:
    first, second = [await staged.classify(CANARY, model="words", tenant="roomy") for _ in range(2)]
    assert first.headers["ratelimit-policy"] == '"requests";q=5000;w=5'
    left = [re.fullmatch(r'"requests";r=(\d+);t=(\d+)', answer.headers["ratelimit"]) for answer in (first, second)]
    assert all(match and 4900 < int(match[1]) < 5000 for match in left)


async def test_a_tenant_over_its_rate_is_told_how_long_to_wait_and_then_succeeds(staged: RunningGateway) -> None:
    answer = await staged.classify(CANARY, model="words", tenant="tight")
    while answer.status_code == 200:
        answer = await staged.classify(CANARY, model="words", tenant="tight")
    assert_problem(answer, 429, "rate_limited")
    assert answer.headers["ratelimit"].startswith('"requests";r=0;t=')
    wait = answer.headers["retry-after"]
    assert wait == "1"
    await asyncio.sleep(int(wait))
    assert (await staged.classify(CANARY, model="words", tenant="tight")).status_code == 200


async def test_a_limit_on_one_route_leaves_the_others_alone(gateway: RunningGateway) -> None:
    assert (await gateway.classify(CANARY, tenant="slow-here")).status_code == 200
    refused = await gateway.classify(CANARY, tenant="slow-here")
    assert_problem(refused, 429, "rate_limited")
    assert '"noop-requests"' in refused.headers["ratelimit-policy"]
    assert (await gateway.classify(CANARY, tenant="slow-here", model="questions")).status_code == 200


async def test_more_characters_than_any_wait_allows_are_outside_the_rules(staged: RunningGateway) -> None:
    answer = await staged.classify(*[CANARY * 10] * 3, model="words", tenant="terse")
    assert_problem(answer, 422, "invalid_input")
    assert "retry-after" not in answer.headers


async def test_characters_are_counted_as_code_points_over_all_texts(staged: RunningGateway) -> None:
    answer = await staged.classify("a" * 200, "\U0001f600" * 200, model="words", tenant="terse")
    assert answer.json()["usage"]["characters"] == 400
    refused = await staged.classify("a" * 200, model="words", tenant="terse")
    assert_problem(refused, 429, "rate_limited")
    assert '"characters"' in refused.headers["ratelimit-policy"]


async def test_a_days_quota_is_used_up_until_tomorrow(staged: RunningGateway) -> None:
    assert (await staged.classify("a" * 30, model="words", tenant="frugal")).status_code == 200
    refused = await staged.classify("a" * 20, model="words", tenant="frugal")
    assert_problem(refused, 429, "quota_exhausted")
    assert 0 < int(refused.headers["retry-after"]) <= 86_400
    assert (await staged.classify("a" * 10, model="words", tenant="frugal")).status_code == 200


async def test_a_slot_in_flight_is_free_again_after_the_answer_and_after_a_fault(
    staged: RunningGateway, stage: FakeTriton
) -> None:
    stage.behaviours["words"] = never
    waiting = asyncio.create_task(staged.classify(CANARY, model="words", tenant="single", timeout_ms=600))
    await stage.arrived.wait()
    assert_problem(await staged.classify(CANARY, model="words", tenant="single"), 429, "too_many_in_flight")
    assert_problem(await waiting, 504, "deadline_exceeded")
    stage.behaviours.clear()
    for _ in range(5):
        assert (await staged.classify(CANARY, model="words", tenant="single")).status_code == 200


async def test_a_full_model_is_waited_for_a_moment_and_the_refusal_costs_the_tenant_nothing(
    staged: RunningGateway, stage: FakeTriton
) -> None:
    release = asyncio.Event()

    async def held(request: pb.ModelInferRequest, context: grpc.aio.ServicerContext) -> pb.ModelInferResponse:
        await release.wait()
        return stage.well_formed(request)

    stage.behaviours["brief"] = held  # which has one berth
    running = asyncio.create_task(staged.classify(CANARY, model="brief", timeout_ms=9000))
    await stage.arrived.wait()
    for _ in range(4):
        refused = await staged.classify(CANARY, model="brief", tenant="tight-too", timeout_ms=100)
        assert_problem(refused, 503, "overloaded")
        assert int(refused.headers["retry-after"]) >= 1
    waiting = asyncio.create_task(staged.classify(CANARY, model="brief", tenant="tight-too", timeout_ms=5000))
    release.set()
    assert [(await answer).status_code for answer in (running, waiting)] == [200, 200]


async def test_refused_input_costs_the_tenant_nothing(staged: RunningGateway) -> None:
    for _ in range(5):
        assert_problem(await staged.classify("", model="words", tenant="tight-as-well"), 422, "invalid_input")
    assert (await staged.classify(CANARY, model="words", tenant="tight-as-well")).status_code == 200


async def test_as_many_pass_at_once_as_the_burst_and_the_time_allow(staged: RunningGateway) -> None:
    started = monotonic()
    answers = await asyncio.gather(*(staged.classify(CANARY, model="words", tenant="tight-at-once") for _ in range(10)))
    passed = sum(answer.status_code == 200 for answer in answers)
    assert 2 <= passed <= 2 + math.ceil(monotonic() - started)
    assert {answer.status_code for answer in answers} == {200, 429}
