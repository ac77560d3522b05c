"""NDJSON: the lines of a bulk post, and the lines of its answer."""

import asyncio
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, overload

from pydantic_core import to_json

from app.api.body import validate
from app.api.bulk_schemas import MAX_ID, MAX_NUMBER, BulkLine
from app.api.json_text import parse_calmly
from app.api.turns import Turn, let_go
from app.errors import Flaw, InvalidInput, Refusal, TooLarge, sentence
from app.routing.route import Caps

_BREAKS = {b"\xc2\x85": b"\\u0085", b"\xe2\x80\xa8": b"\\u2028", b"\xe2\x80\xa9": b"\\u2029"}
"""Line breaks to Unicode and to many a client, though not to NDJSON; inside JSON they stand only in strings."""
_ESCAPED, _REST = 12, 8192
"""Bytes of a character as JSON may write it (`\\ud83d\\ude00`), and of all that is not the text."""


@dataclass(frozen=True, slots=True)
class Line:
    index: int
    id: str | int | None
    text: str
    refusal: Refusal | None = None


class Lines(Sequence[bytes]):
    """The lines of a body, of which the last one need not be ended: cut out when they are asked for, since to cut a large body
    at once would hold the event loop. Raises `InvalidInput` where there are none, or more than `most`.
    """

    def __init__(self, body: bytes | bytearray, most: int) -> None:
        if not body:
            raise InvalidInput("there must be at least one line", flaws=(Flaw("", "too_few", "there is no line"),))
        self._body = body
        self._starts = [0, *(end.end() for end in islice(re.finditer(b"\n", body), most + 1))]
        if self._starts[-1] < len(body):
            self._starts.append(len(body) + 1)
        if len(self) > most:
            detail = f"a bulk post may have at most {most} lines"
            raise InvalidInput(detail, flaws=(Flaw("", "too_many", "this has more lines"),))

    def __len__(self) -> int:
        return len(self._starts) - 1

    @overload
    def __getitem__(self, at: int) -> bytes: ...
    @overload
    def __getitem__(self, at: slice) -> list[bytes]: ...
    def __getitem__(self, at: int | slice) -> bytes | list[bytes]:
        if isinstance(at, slice):
            return [self[one] for one in range(*at.indices(len(self)))]
        return bytes(self._body[self._starts[at] : self._starts[at + 1] - 1])


async def read_line(index: int, raw: bytes, caps: Caps, turns: asyncio.Lock) -> Line:
    """It has a refusal in place of a text where it is no JSON, not what a line has to be, or outside the caps of the model."""
    document, given = None, None
    try:
        if len(raw) > _ESCAPED * caps.characters_per_input + _REST:
            raise TooLarge("the line has more bytes than the longest text of this model and an id need")
        document = await parse_calmly(raw, turns, "line")
        given = _id(document)
        line = validate(document, BulkLine, "line")
        caps.admit((line.text,), "/text", _pointer)
    except Refusal as refusal:
        await let_go(document, Turn())
        return Line(index, given, "", refusal)
    return Line(index, line.id, line.text)


def answered(line: Line, version: str, result: Any) -> bytes:
    return _written({**_head(line), "version": version, "result": result})


def refused(line: Line, refusal: Refusal) -> bytes:
    """Members as in problem details."""
    error: dict[str, Any] = {"status": refusal.status, "code": refusal.code, "detail": sentence(refusal.detail)}
    if refusal.retry_after is not None:
        error["retry_after"] = refusal.retry_after
    if refusal.flaws:
        error["errors"] = [
            {"pointer": flaw.pointer, "code": flaw.code, "detail": sentence(flaw.detail)} for flaw in refusal.flaws
        ]
    return _written({**_head(line), "error": error})


def _written(content: dict[str, Any]) -> bytes:
    line = to_json(content)
    for broken, escaped in _BREAKS.items():
        if broken in line:
            line = line.replace(broken, escaped)
    return line + b"\n"


def _head(line: Line) -> dict[str, Any]:
    return {"index": line.index} if line.id is None else {"index": line.index, "id": line.id}


def _id(document: object) -> str | int | None:
    """Of a line that may be wrong in all else."""
    match document:
        case {"id": str(name)} if len(name) <= MAX_ID:
            return name
        case {"id": int(number)} if not isinstance(number, bool) and abs(number) <= MAX_NUMBER:
            return number
    return None


def _pointer(at: int) -> str:
    return "/text"
