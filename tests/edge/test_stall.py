"""Who reads slowly is waited for; who reads nothing holds nothing for ever."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from socket import SO_SNDBUF, SOL_SOCKET, socket
from typing import Any

import pytest
import pytest_asyncio
import uvicorn
from uvicorn.server import ServerState

from app.edge.wire import WireLimits, limited
from app.local.address import Address
from tests.edge.raw import connected, head

ANSWER = bytes(2**20)
LENGTH = (b"content-length", str(len(ANSWER)).encode())


@dataclass
class Serving:
    """The wire alone, with an application that answers a megabyte, and as little room in the kernel as there may be."""

    address: Address
    ended: list[str] = field(default_factory=list)

    async def app(self, scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [LENGTH]})
        await send({"type": "http.response.body", "body": ANSWER, "more_body": False})
        while (await receive())["type"] != "http.disconnect":
            pass
        self.ended.append(scope["path"])


@pytest_asyncio.fixture
async def serving() -> AsyncIterator[Serving]:
    with socket() as door:
        door.setsockopt(SOL_SOCKET, SO_SNDBUF, 4096)
        door.bind(("127.0.0.1", 0))
        serving = Serving(Address(*door.getsockname()))
        config = uvicorn.Config(serving.app, interface="asgi3", log_config=None, lifespan="off", ws="none")
        config.load()
        wire = limited(WireLimits(16_384, 10, 100, stall_seconds=0.2), lambda *_: None)
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: wire(config=config, server_state=ServerState(), app_state={}), sock=door)
        yield serving
        server.close()


async def test_who_reads_nothing_is_hung_up_on(serving: Serving) -> None:
    async with connected(serving.address, window=4096) as line:
        line.shut()
        await line.send(head("GET /") * 2)
        async with asyncio.timeout(5):
            while len(serving.ended) < 2:
                await asyncio.sleep(0.02)
        line.open()
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await line.answers(2)


async def test_who_reads_slowly_is_waited_for(serving: Serving) -> None:
    async with connected(serving.address, window=2**16) as line:
        await line.send(head("GET /"))
        started = asyncio.get_running_loop().time()
        assert len(await line.sipped(len(ANSWER))) >= len(ANSWER)
        assert asyncio.get_running_loop().time() - started > 0.5, "or it was not slow"
