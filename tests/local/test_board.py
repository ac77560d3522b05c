"""What the terminal shows, and what a plain log gets."""

import asyncio
import io
import os
import pty
import re
import stat

from app.local.board import Board


async def test_a_plain_log_gets_one_line_for_each_change() -> None:
    log = io.StringIO()
    board = Board(log)
    async with board.alive():
        board.tell("redis", "starting", busy=True)
        board.tell("redis", "ready in 0.1 s")
    assert log.getvalue() == "redis    starting\nredis    ready in 0.1 s\n"


async def test_a_terminal_shows_a_live_line_for_each_part_and_plain_lines_afterwards() -> None:
    controller, terminal = pty.openpty()
    with os.fdopen(terminal, "w", encoding="utf-8") as stream:
        board = Board(stream)
        async with board.alive():
            board.tell("redis", "ready in 0.1 s")
            board.tell("triton", "starting", busy=True)
            await asyncio.sleep(0.35)  # three frames
            board.tell("triton", "ready in 3.1 s")
        board.tell("redis", "ended")
        seen = b""
        while b"ended" not in seen:
            seen += os.read(controller, 65536)
        shown = seen.decode()
    os.close(controller)
    assert re.search(r"\S triton   starting, 0\.\d s", shown)
    assert "\x1b[2A" in shown, "drawn over the two lines of before"
    last = shown.split("\x1b[2A")[-1].replace("\x1b[K", "").splitlines()
    assert last == ["  redis    ready in 0.1 s", "  triton   ready in 3.1 s", "redis    ended"]


async def test_a_terminal_that_is_gone_stops_nothing() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as stream:
        board = Board(stream)
        for news in ("stopping", "stopped"):
            board.tell("redis", news)
        assert stat.S_ISCHR(os.fstat(stream.fileno()).st_mode), "it leads to /dev/null now"
