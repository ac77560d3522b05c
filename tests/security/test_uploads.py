"""Bodies that are still arriving: many of them don't fill a process, and one tenant's leave room for another's."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from app.api.hold import Hold
from app.errors import Overloaded
from tests.edge.raw import Line, connected, head
from tests.fakes.triton import FakeTriton
from tests.gateway.problems import assert_problem
from tests.gateway.process import RunningGateway
from tests.peers import Redis

BODY = json.dumps({"model": "words", "inputs": ["ä" * 150] * 640}).encode()
"""Six bytes for each character, so that it is large and within the route's caps."""


def test_all_is_given_back_however_it_ends() -> None:
    hold = Hold(100)
    for _ in range(3):
        with hold.stowing("a") as stow:
            stow(30)
            stow(20)
            with pytest.raises(Overloaded):
                stow(1)
        with pytest.raises(OSError, match="gone"), hold.stowing("a"):
            raise OSError("gone")


def test_together_they_have_no_more_than_there_is() -> None:
    hold = Hold(100)
    with hold.stowing("a") as a, hold.stowing("b") as b, hold.stowing("c") as c:
        a(50)
        b(45)
        with pytest.raises(Overloaded):
            c(6)
        c(5)


async def test_a_tenant_s_uploads_leave_room_for_another_s(
    start_gateway: Callable[..., Awaitable[RunningGateway]], redis: Redis, staged_routes: Path, stage: FakeTriton
) -> None:
    small = {"MAX_BODY_BYTES": "1000000", "BODY_MEMORY_BYTES": "2000000"}
    gateway = await start_gateway(TRITON=stage.address, REDIS_URL=redis.url, ROUTES_FILE=str(staged_routes), **small)
    async with AsyncExitStack() as stack:

        async def begun(tenant: str) -> Line:
            line = await stack.enter_async_context(connected(gateway.address))
            key = f"Authorization: Bearer {gateway.tenants.keys[tenant]}"
            fields = (key, "Content-Type: application/json", f"Content-Length: {len(BODY)}")
            await line.send(head("POST /v1/classify", *fields) + BODY[:-1])
            return line

        lines = [await begun("open"), await begun("open")]
        answers = {asyncio.create_task(line.answer()): line for line in lines}
        [refused], [waiting] = await asyncio.wait(answers, return_when=asyncio.FIRST_COMPLETED)
        assert "bodies" in assert_problem(refused.result(), 503, "overloaded").detail
        other = await begun("acme")
        for line in (answers[waiting], other):
            await line.send(BODY[-1:])
        assert [(await waiting).status_code, (await other.answer()).status_code] == [200, 200]
        again = await begun("open")
        await again.send(BODY[-1:])
        assert (await again.answer()).status_code == 200
