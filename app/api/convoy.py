"""Many lines through one model: packed by length, several batches in flight, answered in the order in which they came."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from app.api.lines import Line
from app.api.turns import Turn

Read = Callable[[int, bytes], Awaitable[Line | bytes]]
"""A line, by its number; or at once its answer, where it is no line that can be asked."""
Ask = Callable[[Sequence[Line]], Awaitable[Sequence[bytes]]]
"""What is written for each line of a batch; it raises no refusal, since each line has an answer or an error of its own."""
Send = Callable[[bytes], Awaitable[None]]

_PIECE = 64 * 1024
"""Bytes sent at once, so that who reads slowly is felt soon."""
_WINDOW = 128 * 1024
"""Bytes read before the first of them are asked for."""


@dataclass(frozen=True, slots=True)
class Cargo:
    """What one batch may hold."""

    lines: int
    characters: int


class Convoy:
    """Lines are read a window at a time, and within it those of like length travel together, since a batch is padded to its
    longest. No more than two windows are under way: who stops reading stops the work, and holds no more memory than that.
    """

    def __init__(self, lines: Sequence[bytes], read: Read, ask: Ask, cargo: Cargo, width: int) -> None:
        self._lines = lines
        self._read = read
        self._ask = ask
        self._cargo = cargo
        self._width = width
        self._window = cargo.lines * width
        self._batches: deque[list[Line]] = deque()
        self._answers: dict[int, bytes] = {}
        self._begun = self._sent = 0
        self._changed = asyncio.Event()
        self._reading = asyncio.Lock()

    async def run(self, send: Send) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(self._width):
                group.create_task(self._work())
            await self._deliver(send)

    async def _work(self) -> None:
        while batch := await self._next():
            answers = await self._ask(batch)
            self._answers.update(zip((line.index for line in batch), answers, strict=True))
            self._changed.set()

    async def _next(self) -> list[Line]:
        """The next batch; an empty one when all have been given out."""
        async with self._reading:
            while not self._batches and self._begun < len(self._lines):
                if self._begun - self._sent <= self._window:
                    await self._open_window()
                else:
                    await self._change()
            return self._batches.popleft() if self._batches else []

    async def _open_window(self) -> None:
        sound = []
        size, turn = 0, Turn()
        end = min(self._begun + self._window, len(self._lines))
        while self._begun < end and size < _WINDOW:
            raw = self._lines[self._begun]
            line = await self._read(self._begun, raw)
            if isinstance(line, bytes):
                self._answers[self._begun] = line
            else:
                sound.append(line)
            size += len(raw)
            self._begun += 1
            await turn.pause()
        self._batches.extend(packed(sound, self._cargo))
        self._changed.set()

    async def _deliver(self, send: Send) -> None:
        while self._sent < len(self._lines):
            piece = self._ready()
            if piece:
                await send(b"".join(piece))
                self._sent += len(piece)
                self._changed.set()
            else:
                await self._change()

    def _ready(self) -> list[bytes]:
        piece: list[bytes] = []
        size = 0
        while size < _PIECE and (answer := self._answers.pop(self._sent + len(piece), None)) is not None:
            piece.append(answer)
            size += len(answer)
        return piece

    async def _change(self) -> None:
        self._changed.clear()
        await self._changed.wait()


def packed(lines: Sequence[Line], cargo: Cargo) -> list[list[Line]]:
    """Batches within the cargo; a line that exceeds it alone travels alone."""
    batches: list[list[Line]] = []
    room = 0
    for line in sorted(lines, key=lambda line: len(line.text)):
        room -= len(line.text)
        if not batches or len(batches[-1]) == cargo.lines or room < 0:
            batches.append([])
            room = cargo.characters - len(line.text)
        batches[-1].append(line)
    return batches
