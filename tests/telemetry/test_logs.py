"""One JSON line for each request, with no character of a text or a key; the session's end looks at all of them once more."""

import asyncio
import json
import logging
import os
import threading
from io import BytesIO, StringIO, TextIOWrapper
from typing import Any, BinaryIO, cast

from app.telemetry.exchange import Exchange
from app.telemetry.logs import HELD_SECONDS, AccessLog, json_handler
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


async def logged(level: str, share: float, *statuses: int, lines: dict[str, int] | None = None) -> list[dict[str, Any]]:
    stream = BytesIO()
    access = AccessLog(level, share, stream)
    for status in statuses:
        access.record(Exchange("r", outcomes=lines or {}), "GET", status)
    await asyncio.sleep(2 * HELD_SECONDS)
    return [json.loads(line) for line in stream.getvalue().splitlines()]


async def test_lines_leave_together_after_a_moment_or_when_they_are_many() -> None:
    stream = BytesIO()
    access = AccessLog(stream=stream)
    access.record(Exchange("first"), "GET", 200)
    assert not stream.getvalue()
    access.flush()
    assert stream.getvalue().count(b"\n") == 1
    while stream.getvalue().count(b"\n") == 1:
        access.record(Exchange("more"), "GET", 200)
    assert 16_384 < len(stream.getvalue()) < 65_536
    access.record(Exchange("last"), "GET", 200)
    await asyncio.sleep(2 * HELD_SECONDS)
    assert json.loads(stream.getvalue().splitlines()[-1])["request_id"] == "last"


async def test_a_line_is_as_grave_as_its_status_and_the_level_holds_for_it() -> None:
    levels = [(line["status"], line["level"]) for line in await logged("info", 1, 200, 404, 499, 500, 503)]
    assert levels == [(200, "info"), (404, "info"), (499, "info"), (500, "error"), (503, "error")]
    assert [line["status"] for line in await logged("warning", 1, 200, 404, 500)] == [500]


async def test_of_what_succeeds_a_share_is_told_and_of_the_rest_all() -> None:
    assert [line["status"] for line in await logged("info", 0, 200, 204, 400, 429, 500)] == [400, 429, 500]
    assert 20 < len(await logged("info", 0.1, *[200] * 1000)) < 250
    assert len(await logged("info", 0, 200, lines={"ok": 5, "invalid_input": 1})) == 1
    assert not await logged("info", 0, 200, lines={"ok": 5})


def test_an_event_says_which_request_it_happened_to_and_no_word_of_an_exception() -> None:
    stream = StringIO()
    handler = json_handler(stream)
    log = logging.getLogger("tests.a-logger-of-its-own")
    log.addHandler(handler)
    log.propagate = False
    try:
        raise ValueError(CANARY)
    except ValueError:
        log.exception("a request failed", extra={"request_id": "r", "trace_id": "t"})
    event = json.loads(stream.getvalue())
    assert (event["request_id"], event["trace_id"], event["exception"]) == ("r", "t", "ValueError")
    assert event["at"][0].startswith("test_logs.py:")
    assert CANARY not in stream.getvalue()


async def test_lines_stay_whole_beside_those_of_other_threads() -> None:
    """In a pipe, with PYTHONUNBUFFERED."""
    out, into = os.pipe()
    raw = cast(BinaryIO, open(into, "wb", buffering=0))  # noqa: ASYNC230, PTH123, SIM115
    with open(out, "rb") as reader, TextIOWrapper(raw, encoding="utf-8", write_through=True) as stream:  # noqa: ASYNC230, PTH123
        handler = json_handler(stream)
        access = AccessLog(stream=raw, beside=handler)
        over = threading.Event()

        def shout() -> None:
            while not over.is_set():
                handler.handle(logging.LogRecord("tests", logging.INFO, "", 0, "a" * 700, (), None))

        def read() -> list[bytes]:
            return reader.read().splitlines()

        reading = asyncio.create_task(asyncio.to_thread(read))
        shouting = asyncio.create_task(asyncio.to_thread(shout))
        await asyncio.sleep(0)  # who reads must, before this thread writes more than a pipe takes
        for _ in range(100):
            for _ in range(200):
                access.record(Exchange("r"), "GET", 200)
            await asyncio.to_thread(access.flush)
        over.set()
        await shouting
        stream.close()
        lines = [json.loads(line) for line in await reading]
    assert sum(line["logger"] == "conch.access" for line in lines) == 20_000
    assert sum(line["logger"] == "tests" for line in lines) > 10


async def test_no_line_can_be_forged_by_what_a_caller_sends(staged: RunningGateway) -> None:
    answer = await staged.client.get("/livez?%0a{%22forged%22:1}", headers={"x-request-id": '"},{"forged":"'})
    assert answer.status_code == 200
    assert "forged" not in await staged.logged()


async def test_server_timing_tells_where_the_time_went(staged: RunningGateway) -> None:
    answer = await staged.classify("a", model="words")
    timing = dict(part.split(";dur=") for part in answer.headers["server-timing"].split(", "))
    assert timing.keys() == {"auth", "admission", "triton", "total"}
    assert float(timing["triton"]) <= float(timing["total"])
