"""Requests of one connection: run and answered one after the other, however many are sent ahead."""

import asyncio
from time import monotonic
from typing import Any

from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT, FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

_SLICE_BYTES, _FEW_BYTES = 4096, 256
_TURN_SECONDS = 0.002


class Connection(HttpToolsProtocol):
    """uvicorn makes objects of every request the moment that it arrives. Of 9,000 with 27 bytes each, as many as one read may
    bring, they are 20 MB and hold the loop for half a second, which a stranger can do on every connection. So bytes are given
    to the parser in slices, for a moment at a time, and those behind a request that waits for its turn are kept as they are.

    Requests that are answered the moment that they arrive have turns as well, hardly more than one in each: to answer for a
    moment at a time made others wait five times as long as a flood that is answered by the long way.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.ahead = b""
        """What the parser has not been given yet. Until it has, nothing more is read."""
        self.is_over = False
        """Whatever else comes is thrown away."""
        self.has_answered = False
        """A request, while it was read."""
        self._running: RequestResponseCycle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.flow = _Flow(transport, self)

    def connection_lost(self, exc: Exception | None) -> None:
        """uvicorn tells the request that came last alone."""
        if (running := self.unanswered()) is not None:
            forsake(running)
        super().connection_lost(exc)

    def unanswered(self) -> RequestResponseCycle | None:
        """The request that runs, as long as somebody waits for more of its answer."""
        running = self._running
        return None if running is None or running.response_complete or running.disconnected else running

    def data_received(self, data: bytes) -> None:
        if self.is_over:
            return
        self._unset_keepalive_if_required()
        if self.ahead or self.pipeline or len(data) > _SLICE_BYTES:
            self._read(self.ahead + data)
        else:
            self.parse(data)

    def parse(self, data: bytes) -> None:
        raise NotImplementedError

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.ahead and not self.pipeline:
            self.loop.call_soon(self._read_on)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._running = cycle
        super()._start_asgi_task(cycle, app)

    def _read(self, data: bytes) -> None:
        size = _FEW_BYTES if self.has_answered else _SLICE_BYTES
        self.ahead, self.has_answered = b"", False
        began = monotonic()
        for at in range(0, len(data), size):
            if self.pipeline or self.has_answered or monotonic() - began > _TURN_SECONDS:
                self._keep(data[at:])
                return
            self.parse(data[at : at + size])
            if self.is_over or self.transport.is_closing():
                return

    def _keep(self, ahead: bytes) -> None:
        self.ahead = ahead
        self.flow.pause_reading()
        if not self.pipeline:
            self.loop.call_soon(self._read_on)

    def _read_on(self) -> None:
        if self.transport.is_closing():
            return
        self._unset_keepalive_if_required()
        self._read(self.ahead)
        cycle = self.cycle
        if cycle is None or cycle.response_complete or len(cycle.body) <= HIGH_WATER_LIMIT:
            self.flow.resume_reading()


class _Flow(FlowControl):
    def __init__(self, transport: asyncio.Transport, connection: Connection) -> None:
        super().__init__(transport)
        self._connection = connection

    def resume_reading(self) -> None:
        if not self._connection.ahead:
            super().resume_reading()


def forsake(cycle: RequestResponseCycle) -> None:
    """Tells a request that nobody waits for its answer."""
    cycle.disconnected = True
    cycle.message_event.set()
