"""Requests that are sent before those ahead of them are answered."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
import pytest_asyncio
import uvicorn
from uvicorn.server import ServerState

from app.edge.echo import Fields
from app.edge.wire import Say, Wire, WireLimits, limited
from app.local.address import Address
from tests.edge.raw import Line, connected, head

ANSWER = {"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]}
MANY = 9_000
IDLE_SECONDS = 1


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


@dataclass
class Saying(Serving):
    """Answers `/again` the moment that it arrives."""

    said: int = 0
    size: int = 0

    def say(self, target: bytes, headers: Fields, more: Fields) -> bytes | None:
        if target != b"/again":
            return None
        self.said += 1
        return b"HTTP/1.1 429 \r\ncontent-length: %d\r\nx-path: /again\r\n\r\n%b" % (self.size, bytes(self.size))


@asynccontextmanager
async def open_to_all(serving: Serving, say: Say) -> AsyncIterator[None]:
    config = uvicorn.Config(
        serving.app, interface="asgi3", log_config=None, lifespan="off", ws="none", timeout_keep_alive=IDLE_SECONDS
    )
    config.load()
    wire = limited(WireLimits(16_384, 10, 100, stall_seconds=10), lambda *_: None, say)

    def one() -> Wire:
        serving.wires.append(wire(config=config, server_state=ServerState(), app_state={}))
        return serving.wires[-1]

    server = await asyncio.get_running_loop().create_server(one, "127.0.0.1", 0)
    serving.address = Address(*server.sockets[0].getsockname())
    yield
    server.close()


@pytest_asyncio.fixture
async def serving() -> AsyncIterator[Serving]:
    serving = Serving()
    async with open_to_all(serving, lambda *_: None):
        yield serving


@pytest_asyncio.fixture
async def saying() -> AsyncIterator[Saying]:
    saying = Saying()
    async with open_to_all(saying, saying.say):
        yield saying


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


@pytest.mark.parametrize("after", [b"", b"\r\n", b"rest"], ids=["nothing", "a blank line", "the rest of a refused body"])
async def test_who_asks_nothing_more_is_hung_up_on(serving: Serving, after: bytes) -> None:
    async with connected(serving.address) as line:
        await line.send(head("POST /", "Content-Length: 4") if after == b"rest" else head("GET /"))
        assert await paths(line, 1) == ["/"]
        await line.send(after)
        async with asyncio.timeout(5):
            assert await line.is_closed()


async def test_what_was_sent_ahead_may_run_for_longer_than_a_connection_may_idle(serving: Serving) -> None:
    padding = "X-Padding: " + "a" * (4096 - len(head("GET /", "X-Padding: ")))
    async with connected(serving.address) as line:
        await line.send(head("GET /", padding) * 2 + head("GET /slow"))  # the slow one begins a slice of its own
        await serving.begun.wait()
        await asyncio.sleep(2 * IDLE_SECONDS)
        serving.told.set()
        assert await paths(line, 3) == ["/", "/", "/slow"]


async def test_of_what_is_answered_as_it_arrives_others_have_their_turn_in_between(saying: Saying) -> None:
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += saying.said > 0

    counting = asyncio.create_task(count())
    async with connected(saying.address) as line:
        await line.send(head("GET /"))
        assert await paths(line, 1) == ["/"]
        await line.send(head("POST /again", "X-Padding: " + "a" * 100) * 1_000)
        assert await paths(line, 1_000) == ["/again"] * 1_000
    counting.cancel()
    assert saying.said == 1_000
    assert turns > 300


async def test_who_does_not_read_what_it_is_told_is_told_no_more(saying: Saying) -> None:
    async with connected(saying.address, window=4096) as line:
        await line.send(head("GET /"))
        assert await paths(line, 1) == ["/"]
        line.shut()
        saying.size = 4096
        await line.send(head("POST /again") * MANY)
        async with asyncio.timeout(10):
            while not saying.wires[0].flow.write_paused:
                await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)
        told = saying.said
        await asyncio.sleep(0.3)
        assert saying.said == told < MANY
        line.open()
        assert await paths(line, MANY) == ["/again"] * MANY


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
