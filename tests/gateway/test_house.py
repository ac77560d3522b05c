"""What runs beside the requests."""

import asyncio
import logging

import pytest

from app.house import _tended


async def test_a_watch_that_fails_is_logged_and_begins_anew(caplog: pytest.LogCaptureFixture) -> None:
    begun = asyncio.Queue[int]()

    async def watch() -> None:
        begun.put_nowait(begun.qsize())
        raise KeyError("nobody thought of it")

    with caplog.at_level(logging.ERROR, "conch"):
        tending = asyncio.create_task(_tended("the weather", watch))
        async with asyncio.timeout(10):
            await begun.get()
            await begun.get()
    tending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await tending
    assert "the watch over the weather failed" in caplog.text
