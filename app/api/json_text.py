"""A JSON text of any size. A large one is read in turns, since the parser holds the event loop and would not let go of the
interpreter in a thread either.
"""

import asyncio
import re
from dataclasses import dataclass, field
from typing import Any

from app.api.strict_json import BLANKS, DEEPEST, TOO_DEEP, TWICE, malformed, parse
from app.api.turns import Turn, let_go
from app.errors import Refusal, TooLarge

_AT_ONCE_BYTES = 16 * 1024
_AT_ONCE_TEXT_BYTES = 512 * 1024
_AT_ONCE_CONTAINERS, _AT_ONCE_COMMAS = 2_048, 8_192
_PIECE_BYTES = 8 * 1024
_PAUSES = 256
STRING_BYTES = 1024 * 1024
"""Of one string, as it is written. Decoding one holds the event loop."""
_IDLE_BYTES = 64 * 1024
"""Without a string, a bracket or a comma: what can't be cut is read at once."""
_MOST_VALUES = 200_000  # of 50 bytes and more each, from two that were sent
_MOST_MEMBERS = 10_000  # a table of 200,000 grows in 10 ms

_STRUCTURE = re.compile(rb'["\[\]{}]')
_BLANK = re.compile(rb"[ \t\r\n]*+")
_WITHIN_STRING = re.compile(rb'(?:[^"\\]|\\.)*+', re.DOTALL)
_CLOSING = {ord("["): ord("]"), ord("{"): ord("}")}


async def parse_calmly(text: bytes | bytearray, turns: asyncio.Lock, whole: str = "body") -> object:
    """The JSON of a body of any size, or of whatever else is `whole`. One large one at a time has a turn, or ten would take
    turns of ten times the length.
    """
    if _is_quick(text):
        return parse(bytes(text), whole)
    async with turns:
        reading = _Reading(text, whole)
        try:
            return await reading.value()
        except Refusal:
            await reading.give_up()
            raise


def _is_quick(text: bytes | bytearray) -> bool:
    return len(text) <= _AT_ONCE_BYTES or (
        len(text) <= _AT_ONCE_TEXT_BYTES
        and text.count(b"[") + text.count(b"{") <= _AT_ONCE_CONTAINERS
        and text.count(b",") <= _AT_ONCE_COMMAS
    )


@dataclass(slots=True)
class _Container:
    """An array or object that is open. `start` is where the text begins that is not parsed yet."""

    opened: int
    start: int
    closing: int
    name: tuple[int, int]
    """Where the last string before it stands: its name, where it is an object's member."""
    items: Any = None
    """What is parsed; None as long as nothing is, and it may still be parsed as a part of what it is in."""
    is_owed: bool = False
    """A comma stands before `start`, so that something must follow."""


@dataclass(slots=True)
class _Reading:
    """Cuts the text at commas, where its arrays and objects are large, and parses piece by piece.

    Each piece is given back its brackets and parsed as strictly as a whole text; since each comma at which it was cut has
    something on both sides, what passes is what the parser would have passed as a whole.
    """

    text: bytes | bytearray
    whole: str = "body"
    open: list[_Container] = field(default_factory=list)
    values: int = 0
    turn: Turn = field(default_factory=Turn)

    async def value(self) -> object:
        text, at, turns, string, quiet = self.text, 0, 0, (0, 0), 0
        while at < len(text):
            found = _STRUCTURE.search(text, at, at + _PIECE_BYTES + 1)
            began, at = at, found.start() if found else min(at + _PIECE_BYTES + 1, len(text))
            turns += 1
            if not turns % _PAUSES or not found:
                await self.turn.pause()
            if self.open and at - self.open[-1].start >= _PIECE_BYTES:
                await self._cut(began, at)
            if not found:
                self._refuse_idle(quiet, at)
                continue
            sign = text[at]
            if sign == 0x22:
                string = (at, self._end_of_plain(at) or await self._end_of_string(at))
                at = string[1]
            elif sign in _CLOSING:
                self._enter(at, sign, string)
                at += 1
            else:
                closed = self._leave(at, sign)
                at += 1
                if not self.open:
                    return self._closed(closed, at)
                if closed.items is not None:
                    self._attach(self.open[-1], closed, at)
            quiet = at
        raise malformed(self.whole)

    async def _cut(self, began: int, end: int) -> None:
        """At the commas between `began` and `end`, which all belong to the innermost container."""
        inner = self.open[-1]
        while (comma := self.text.find(b",", max(began, inner.start + _PIECE_BYTES), end)) >= 0:
            self._take(inner, comma)
            inner.start, inner.is_owed = comma + 1, True
            await self.turn.pause()

    def _refuse_idle(self, quiet: int, at: int) -> None:
        if at - max(quiet, self.open[-1].start if self.open else 0) > _IDLE_BYTES:
            raise TooLarge(f"a {self.whole} of this size may have at most {_IDLE_BYTES} blanks or digits in a row")

    def _count(self) -> None:
        self.values += 1
        if self.values > _MOST_VALUES:
            raise TooLarge(f"a {self.whole} may have at most {_MOST_VALUES} strings, lists and objects")

    def _end_of_plain(self, at: int) -> int:
        """Of a string without an escaped quote, as most are; 0 if it is none."""
        self._count()
        end = self.text.find(b'"', at + 1, at + STRING_BYTES)
        return end + 1 if end > 0 and self.text[end - 1] != 0x5C else 0

    async def _end_of_string(self, at: int) -> int:
        """Piece by piece, none of which ends between a backslash and what it stands before."""
        end, limit = at + 1, min(at + STRING_BYTES, len(self.text))
        while (after := _WITHIN_STRING.match(self.text, end, min(end + _PIECE_BYTES, limit)).end()) > end:  # type: ignore[union-attr]
            end = after
            await self.turn.pause()
        if end < limit and self.text[end] == 0x22:
            return end + 1
        if len(self.text) > at + STRING_BYTES:
            raise TooLarge(f"one string of a {self.whole} may have at most {STRING_BYTES} bytes")
        raise malformed(self.whole)

    async def give_up(self) -> None:
        for container in self.open:
            await let_go(container.items, self.turn)

    def _enter(self, at: int, sign: int, string: tuple[int, int]) -> None:
        if not self.open and self.text[:at].strip(BLANKS):
            raise malformed(self.whole)
        self._count()
        if len(self.open) == DEEPEST:
            raise malformed(self.whole, TOO_DEEP)
        self.open.append(_Container(at, at + 1, _CLOSING[sign], string))

    def _leave(self, at: int, sign: int) -> _Container:
        if not self.open or self.open[-1].closing != sign:
            raise malformed(self.whole)
        closed = self.open.pop()
        if closed.items is not None:
            self._take(closed, at, is_last=True)
        return closed

    def _closed(self, closed: _Container, end: int) -> object:
        if self.text[end:].strip(BLANKS):
            raise malformed(self.whole)
        return parse(bytes(self.text), self.whole) if closed.items is None else closed.items

    def _take(self, container: _Container, end: int, *, is_last: bool = False) -> None:
        """Parse what stands before `end`."""
        piece = self.text[container.start : end]
        if not piece.strip(BLANKS):
            if container.is_owed or not is_last:
                raise malformed(self.whole)
            return
        if container.closing == 0x5D:
            container.items = container.items or []
            container.items += parse(b"[%s]" % piece, self.whole)
        else:
            self._add(container, parse(b"{%s}" % piece, self.whole))

    def _add(self, container: _Container, members: Any) -> None:
        if container.items is None:
            container.items = {}
        if len(container.items) + len(members) > _MOST_MEMBERS:
            raise TooLarge(f"an object of a large {self.whole} may have at most {_MOST_MEMBERS} members")
        if not container.items.keys().isdisjoint(members):
            raise malformed(self.whole, TWICE)
        container.items.update(members)

    def _attach(self, outer: _Container, inner: _Container, end: int) -> None:
        """Put a container that was cut into the one around it, which goes on after the comma that follows."""
        before = inner.opened
        if outer.closing == 0x7D:
            before = inner.name[0]
            if before < outer.start or self.text[inner.name[1] : inner.opened].strip(BLANKS) != b":":
                raise malformed(self.whole)
        self._take_before(outer, before)
        if outer.closing == 0x5D:
            outer.items.append(inner.items)
        else:
            self._add(outer, {parse(bytes(self.text[slice(*inner.name)]), self.whole): inner.items})
        self._go_on(outer, end)

    def _take_before(self, container: _Container, end: int) -> None:
        if container.items is None:
            container.items = [] if container.closing == 0x5D else {}
        piece = self.text[container.start : end].rstrip(BLANKS)
        if piece:
            if not piece.endswith(b","):
                raise malformed(self.whole)
            self._take(container, container.start + len(piece) - 1)

    def _go_on(self, container: _Container, at: int) -> None:
        at = _BLANK.match(self.text, at).end()  # type: ignore[union-attr]
        follows = self.text[at : at + 1]
        container.is_owed = follows == b","
        if not container.is_owed and follows != bytes((container.closing,)):
            raise malformed(self.whole)
        container.start = at + container.is_owed
