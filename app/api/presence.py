"""Notices that a caller left while Triton works for it."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from starlette.types import Message, Receive

from app.errors import ClientClosed


class AsgiCaller:
    """ASGI tells of a disconnect only to who asks, and cancels nothing: one `receive` runs beside the work, and cancels it."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._left = False

    @contextmanager
    def watched(self) -> Iterator[None]:
        work = asyncio.current_task()
        assert work is not None  # noqa: S101

        def leave(watch: asyncio.Future[Message]) -> None:
            if not watch.cancelled() and not over:
                self._left = True
                work.cancel()

        over = False
        watch = asyncio.ensure_future(self._receive())
        watch.add_done_callback(leave)
        try:
            yield
        except asyncio.CancelledError:
            if not self._left:
                raise
            work.uncancel()
            raise ClientClosed("the caller left before the answer") from None
        finally:
            over = True
            watch.cancel()
