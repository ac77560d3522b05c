"""One JSON line for each request, with no character of a text or a key; the session's end looks at all of them once more."""

import json
from typing import Any

from tests.fakes.triton import FakeTriton
from tests.gateway.problems import CANARY
from tests.gateway.process import RunningGateway
from tests.peers import eventually

FIELDS = {
    *("time", "level", "logger", "method", "route", "status", "code", "request_id", "trace_id", "tenant", "key", "model"),
    *("ensemble", "inputs", "characters", "tokens", "chunks", "limiter", "degraded", "admission_ms", "triton_ms", "total_ms"),
}


async def line_of(gateway: RunningGateway, request_id: str) -> dict[str, Any]:
    await eventually(lambda: request_id in gateway.log())
    [line] = [line for line in gateway.log().splitlines() if request_id in line]
    return dict(json.loads(line))


async def test_an_answer_leaves_one_line_with_sizes_names_and_times(staged: RunningGateway, stage: FakeTriton) -> None:
    answer = await staged.classify(CANARY, "b", model="brief")
    line = await line_of(staged, answer.headers["x-request-id"])
    assert line.keys() == FIELDS
    expected = {
        "method": "POST",
        "route": "/v1/classify",
        "status": 200,
        "code": "ok",
        "tenant": "open",
        "key": "k1",
        "model": "brief",
        "ensemble": "brief",
        "inputs": 2,
        "characters": len(CANARY) + 1,
        "chunks": 1,
        "limiter": "admitted",
        "degraded": False,
    }
    assert {name: line[name] for name in expected} == expected
    assert 0 < line["triton_ms"] < line["total_ms"]


async def test_a_refusal_leaves_one_line_with_its_code(staged: RunningGateway) -> None:
    for answer, status, code, tenant in (
        (await staged.classify("", model="words"), 422, "invalid_input", "open"),
        (await staged.classify("a", model=CANARY), 404, "unknown_model", "open"),
        (await staged.classify("a", tenant="scopeless"), 403, "forbidden", "scopeless"),
        (await staged.client.post(f"/v1/{CANARY}"), 401, "unauthenticated", ""),
    ):
        line = await line_of(staged, answer.headers["x-request-id"])
        assert (line["status"], line["code"], line["tenant"]) == (status, code, tenant)
        assert CANARY not in str(line)


async def test_no_line_can_be_forged_by_what_a_caller_sends(staged: RunningGateway) -> None:
    answer = await staged.client.get("/livez?%0a{%22forged%22:1}", headers={"x-request-id": '"},{"forged":"'})
    assert answer.status_code == 200
    assert "forged" not in staged.log()


async def test_server_timing_tells_where_the_time_went(staged: RunningGateway) -> None:
    answer = await staged.classify("a", model="words")
    timing = dict(part.split(";dur=") for part in answer.headers["server-timing"].split(", "))
    assert timing.keys() == {"auth", "admission", "triton", "total"}
    assert float(timing["triton"]) <= float(timing["total"])
