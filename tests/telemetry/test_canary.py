"""After a run full of failures, neither a caller's text, nor a key, nor what Triton said is anywhere."""

import asyncio
import gzip
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import grpc
import httpx
import pytest_asyncio
import redis.asyncio as redis_client

from tests.edge.raw import connected, head
from tests.fakes.otlp import Sink, listening
from tests.fakes.triton import Behaviour, FakeTriton, aborting, bent, never
from tests.gateway.problems import CANARY, canaries
from tests.gateway.process import RunningGateway
from tests.gateway.stage import staged_models
from tests.peers import Redis, eventually

Start = Callable[..., Awaitable[RunningGateway]]
ASKED: dict[str, dict[str, Any]] = {
    "/v1/classify": {"model": "words", "inputs": [CANARY]},
    "/v1/embeddings": {"model": "vectors", "input": [CANARY]},
    "/v1/entities": {"model": "spans", "inputs": [CANARY], "include_text": False},
    "/v1/analyze": {"model": "heads", "inputs": [CANARY]},
    "/v1/rerank": {"model": "pairs", "query": CANARY, "documents": [CANARY]},
}
SAID = f"hunter2 of {CANARY}"


def failures(fake: FakeTriton) -> Iterator[Behaviour]:
    """Everything that a Triton may say or do wrong; what it says quotes the text."""
    for code in grpc.StatusCode:
        if code is not grpc.StatusCode.OK:
            yield aborting(code, SAID)
    for message in ("Exceeds maximum queue size", "Request timeout expired", "unknown model", "unexpected shape"):
        yield aborting(grpc.StatusCode.UNAVAILABLE, f"{message} {SAID}")
        yield aborting(grpc.StatusCode.INTERNAL, f"{message} {SAID}")
    yield bent(fake, lambda response: response.ClearField("raw_output_contents"))
    yield bent(fake, lambda response: response.raw_output_contents.append(SAID.encode()))
    yield bent(fake, lambda response: setattr(response.outputs[0], "name", CANARY))
    yield bent(fake, lambda response: setattr(response.outputs[0], "datatype", CANARY))
    yield bent(fake, lambda response: setattr(response, "model_name", CANARY))
    yield bent(fake, lambda response: setattr(response, "model_version", SAID))
    yield never


BODIES = {
    "no JSON": CANARY.encode(),
    "a lone surrogate": b'{"model":"words","inputs":["%s\\ud800"]}' % CANARY.encode(),
    "a member twice": b'{"%(c)b":1,"%(c)b":2}' % {b"c": CANARY.encode()},
    "an unknown member": json.dumps({CANARY: CANARY}).encode(),
    "an unknown model": json.dumps({"model": CANARY, "inputs": [CANARY]}).encode(),
    "a text too long": json.dumps({"model": "words", "inputs": [CANARY * 100]}).encode(),
    "a number for a text": json.dumps({"model": "words", "inputs": [CANARY, 1]}).encode(),
}


@dataclass
class Run:
    gateway: RunningGateway
    fake: FakeTriton
    sink: Sink
    answers: list[httpx.Response] = field(default_factory=list)

    async def post(self, path: str, content: bytes, **headers: Any) -> None:
        fields = {"content-type": "application/json", **self.gateway.tenants.authorization("open"), **headers}
        self.answers.append(await self.gateway.client.post(path, content=content, headers=fields))

    async def fail(self) -> None:
        """In rounds of a failure for each model, since each may take its model out."""
        rest = list(failures(self.fake))
        while rest:
            turns = [(path, body, rest.pop()) for path, body in ASKED.items() if rest]
            self.fake.behaviours = {body["model"]: behaviour for _, body, behaviour in turns}
            await asyncio.gather(*(self.ask(path, timeout_ms=300) for path, _, _ in turns), self.ask_in_bulk())
            await self.revive()

    async def revive(self) -> None:
        self.fake.forget()
        await self.fake.stop()  # what comes back at an address is taken for another process, and probed at once
        await self.fake.start()
        async with asyncio.timeout(30):
            while not all(route["served"] for route in (await self.gateway.status())["routes"].values()):
                await asyncio.sleep(0.02)

    async def ask(self, path: str, **more: Any) -> None:
        await self.post(path, json.dumps({**ASKED[path], **more}).encode())

    async def ask_in_bulk(self) -> None:
        lines = [*BODIES.values(), json.dumps({"text": CANARY}).encode()]
        more = {"content-type": "application/x-ndjson", "x-request-timeout-ms": "300"}
        await self.post("/v1/bulk/classify?model=words", b"\n".join(lines), **more)

    async def err(self) -> None:
        """All that a caller may do wrong, with the canary in each place that is one's own."""
        for path in ASKED:
            for content in BODIES.values():
                await self.post(path, content)
                await self.post(path, gzip.compress(content)[:-1], **{"content-encoding": "gzip"})
            await self.post(f"{path}/{CANARY}?{CANARY}={CANARY}", BODIES["no JSON"])
            await self.post(path, BODIES["no JSON"], **{"content-type": CANARY})
            await self.post(path, BODIES["no JSON"], **{"content-encoding": CANARY})
            await self.post(path, BODIES["no JSON"], **{"x-request-timeout-ms": CANARY})
        for name in ("traceparent", "tracestate", "baggage", "origin", "referer", "user-agent", "cookie", "accept-encoding"):
            await self.post("/v1/classify", BODIES["an unknown model"], **{name: CANARY})
        for key in (f"Bearer {CANARY}", f"Bearer ck_test_{CANARY}", f"Bearer a.{CANARY}.b", f"Basic {CANARY}"):
            await self.post("/v1/classify", BODIES["no JSON"], authorization=key)
        for request in (head(f"{CANARY} /"), head("GET /", host=f"{CANARY}/"), head(f"GET http://{CANARY}/"), CANARY.encode()):
            async with connected(self.gateway.address) as line:
                await line.send(request + b"\r\n\r\n")
                self.answers.append(await line.answer())
        body = BODIES["an unknown model"]
        async with connected(self.gateway.address) as line:  # and leaves
            await line.send(head("POST /v1/classify", f"Content-Length: {len(body)}") + body[:10])

    async def succeed(self) -> None:
        async with asyncio.timeout(30):
            for path in ASKED:
                while not self.answers or self.answers[-1].status_code != 200:
                    await asyncio.sleep(0.05)
                    await self.ask(path)
                await self.ask(path)
            await self.ask_in_bulk()


@pytest_asyncio.fixture(loop_scope="session")
async def run(start_gateway: Start, redis: Redis, staged_routes: object) -> AsyncIterator[Run]:
    with listening() as sink:
        otel = {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": sink.url, "OTEL_BSP_SCHEDULE_DELAY": "100"}
        async with FakeTriton.serving(staged_models()) as fake:
            settings = {"TRITON": fake.address, "REDIS_URL": redis.url, "ROUTES_FILE": str(staged_routes), "LOG_LEVEL": "debug"}
            gateway = await start_gateway(**settings, **otel)
            yield Run(gateway, fake, sink)


async def kept(url: str) -> list[str]:
    """All that Redis holds: names, members and values."""
    readers = {"string": "GET NAME", "hash": "HGETALL NAME", "zset": "ZRANGE NAME 0 -1", "set": "SMEMBERS NAME"}
    found: list[str] = []
    async with redis_client.from_url(url) as client:
        async for name in client.scan_iter():
            kind = await client.type(name)
            before, _, after = readers[kind if isinstance(kind, str) else kind.decode()].partition("NAME")
            reply = await client.execute_command(*before.split(), name, *after.split())  # type: ignore[no-untyped-call]
            found += [str(name), str(reply)]
    return found


async def test_neither_text_nor_key_nor_what_triton_said_is_left_anywhere(run: Run, redis: Redis) -> None:
    await run.succeed()
    await run.fail()
    await run.err()
    await run.succeed()
    codes = {answer.json()["code"] for answer in run.answers if answer.status_code >= 400 and answer.content}
    assert {"upstream_error", "bad_upstream_response", "deadline_exceeded", "overloaded"} <= codes, codes
    await eventually(lambda: run.answers[-1].headers["x-request-id"] in str(run.sink.spans))
    places = {
        "answers": [f"{answer.headers}{answer.text}" for answer in run.answers],
        "log": (await run.gateway.logged()).splitlines(),
        "spans": [str(span) for span in run.sink.spans],
        "metrics": [(await run.gateway.client.get(f"{run.gateway.admin}/metrics")).text],
        "status": [(await run.gateway.client.get(f"{run.gateway.admin}/status")).text],
        "redis": await kept(redis.url),
    }
    for place, lines in places.items():
        assert lines, place
        for line in lines:
            assert not [word for word in canaries(run.gateway.tenants.keys) if word in line], f"{place}: {line[:500]}"
