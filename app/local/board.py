"""One line for each part: alive on a terminal, and plain lines elsewhere."""

import asyncio
import os
import shutil
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import cycle
from time import monotonic
from typing import TextIO

FRAME = 0.1
STILL = 10.0
"""Seconds after which a plain log hears again of what goes on."""
UP, CLEAR = "\x1b[{}A", "\x1b[K"


@dataclass(slots=True)
class Line:
    news: str
    busy: bool
    since: float = field(default_factory=monotonic)

    def __str__(self) -> str:
        return f"{self.news}, {monotonic() - self.since:.1f} s" if self.busy else self.news


class Board:
    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stdout
        self._lines: dict[str, Line] = {}
        self._drawn = 0
        self._terminal = self._stream.isatty() and os.environ.get("TERM") != "dumb"
        self._live = False
        self._spinner = cycle("⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏" if (self._stream.encoding or "").lower().startswith("utf") else "-\\|/")

    @asynccontextmanager
    async def alive(self) -> AsyncIterator[None]:
        """While entered, the lines are drawn in place; afterwards news are written below one another."""
        self._live = self._terminal
        drawing = asyncio.create_task(self._draw_on() if self._live else self._repeat())
        try:
            yield
        finally:
            drawing.cancel()
            await asyncio.gather(drawing, return_exceptions=True)
            if self._live:
                self._draw()
            self._live, self._drawn = False, 0
            self._lines.clear()

    def tell(self, name: str, news: str, *, busy: bool = False) -> None:
        self._lines[name] = Line(news, busy)
        if not self._live:
            self.write(f"{name:<8} {news}")

    def write(self, text: str) -> None:
        try:
            self._stream.write(f"{text}\n")
            self._stream.flush()
        except OSError:  # the terminal is gone, or the pipe closed; the stack must still be stopped in order
            self._turn_to_nowhere()

    def _turn_to_nowhere(self) -> None:
        with open(os.devnull, "w") as nowhere:  # noqa: PTH123  (a name, not a path)
            os.dup2(nowhere.fileno(), self._stream.fileno())

    async def _draw_on(self) -> None:
        while True:
            self._draw()
            await asyncio.sleep(FRAME)

    async def _repeat(self) -> None:
        while True:
            await asyncio.sleep(STILL)
            for name, line in self._lines.items():
                if line.busy:
                    self.write(f"{name:<8} {line}")

    def _draw(self) -> None:
        if self._lines:
            above = UP.format(self._drawn) if self._drawn else ""
            self._drawn = len(self._lines)
            self.write(above + "\n".join(self._drawn_lines()))

    def _drawn_lines(self) -> Iterator[str]:
        frame, width = next(self._spinner), shutil.get_terminal_size().columns
        for name, line in self._lines.items():
            yield f"{frame if line.busy else ' '} {name:<8} {line}"[: width - 1] + CLEAR
