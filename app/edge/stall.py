"""Whoever takes nothing of an answer is hung up on."""

import asyncio
from typing import Any


class Stall:
    """Looks at the bytes that wait to be taken: as long as they get fewer, somebody reads."""

    def __init__(self, transport: Any, loop: asyncio.AbstractEventLoop, seconds: float) -> None:
        self._transport = transport
        self._loop = loop
        self._seconds = seconds
        self._timer: asyncio.TimerHandle | None = None

    def watch(self) -> None:
        size = self._transport.get_write_buffer_size()
        self._timer = self._loop.call_later(self._seconds, self._look, size)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self, before: int) -> None:
        if self._transport.get_write_buffer_size() < before:
            self.watch()
        else:
            self._transport.abort()
