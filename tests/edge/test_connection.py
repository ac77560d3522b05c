"""Requests that are sent before those ahead of them are answered."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import pytest
import pytest_asyncio
import uvicorn
from uvicorn.server import ServerState

from app.edge.wire import Wire, WireLimits, limited
from app.local.address import Address
from tests.edge.raw import Line, connected, head

ANSWER = {"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]}
MANY = 9_000


@dataclass
class Serving:
    """The wire alone. `/slow` is answered when it is told, or when its caller leaves."""

    begun: asyncio.Event = field(default_factory=asyncio.Event)
    told: asyncio.Event = field(default_factory=asyncio.Event)
    left: asyncio.Event = field(default_factory=asyncio.Event)
    wires: list[Wire] = field(default_factory=list)
    address: Address = field(init=False)

    async def app(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] == "/slow":
            self.begun.set()
            await receive()
            leaving, telling = asyncio.ensure_future(receive()), asyncio.ensure_future(self.told.wait())
            await asyncio.wait((leaving, telling), return_when=asyncio.FIRST_COMPLETED)
            if leaving.done():
                self.left.set()
            leaving.cancel()
            telling.cancel()
        await send({**ANSWER, "headers": [*ANSWER["headers"], (b"x-path", scope["raw_path"])]})  # type: ignore[misc]
        await send({"type": "http.response.body"})


@pytest_asyncio.fixture
async def serving() -> AsyncIterator[Serving]:
    serving = Serving()
    config = uvicorn.Config(serving.app, interface="asgi3", log_config=None, lifespan="off", ws="none")
    config.load()
    wire = limited(WireLimits(16_384, 10, 100, stall_seconds=10), lambda *_: None)

    def one() -> Wire:
        serving.wires.append(wire(config=config, server_state=ServerState(), app_state={}))
        return serving.wires[-1]

    server = await asyncio.get_running_loop().create_server(one, "127.0.0.1", 0)
    serving.address = Address(*server.sockets[0].getsockname())
    yield serving
    server.close()


async def paths(line: Line, count: int) -> list[str]:
    return [answer.headers["x-path"] for answer in await line.answers(count)]


async def test_what_is_sent_ahead_waits_as_the_bytes_that_it_is(serving: Serving) -> None:
    async with connected(serving.address) as line:
        await line.send(head("GET /slow") + b"".join(head(f"GET /{at}") for at in range(MANY)))
        await serving.begun.wait()
        assert len(serving.wires[0].pipeline) < 200
        serving.told.set()
        assert await paths(line, 1 + MANY) == ["/slow", *(f"/{at}" for at in range(MANY))]


@pytest.mark.parametrize("size", [1, 100, 4096, 4097, 60_000])
async def test_bodies_among_what_is_sent_ahead_are_no_requests(serving: Serving, size: int) -> None:
    post = head("POST /slow", f"Content-Length: {size}") + b"x" * size
    async with connected(serving.address) as line:
        await line.send((post + head("GET /after")) * 5)
        await serving.begun.wait()
        serving.told.set()
        assert await paths(line, 10) == ["/slow", "/after"] * 5


async def test_who_leaves_is_missed_by_the_request_that_runs_also_when_others_wait(serving: Serving) -> None:
    async with connected(serving.address) as line:
        await line.send(head("GET /slow") + head("GET /after"))
        await serving.begun.wait()
    async with asyncio.timeout(5):
        await serving.left.wait()


FAULTY = {
    "no HTTP": b"\0\r\n\r\n",
    "two framings": head("POST /slow", "Content-Length: 1", "Transfer-Encoding: chunked") + b"1\r\n",
    "a broken body": head("POST /faulty", "Transfer-Encoding: chunked") + b"zz\r\n",
}


@pytest.mark.parametrize("faulty", FAULTY.values(), ids=FAULTY)
@pytest.mark.parametrize("ahead", [1, 2, 300])
async def test_all_before_what_is_refused_is_answered_and_nothing_behind(serving: Serving, faulty: bytes, ahead: int) -> None:
    async with connected(serving.address) as line:
        await line.send(head("GET /slow") * ahead + faulty + head("GET /behind"))
        await serving.begun.wait()
        serving.told.set()
        assert await paths(line, ahead) == ["/slow"] * ahead
        assert (await line.answer()).status_code == 400
        assert await line.is_closed()
