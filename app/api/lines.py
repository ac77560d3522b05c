"""NDJSON: the lines of a bulk post, and the lines of its answer."""

from dataclasses import dataclass
from typing import Any

from pydantic_core import to_json

from app.api.body import validate
from app.api.bulk_schemas import MAX_ID, MAX_NUMBER, BulkLine
from app.api.json_text import parse
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


def split(body: bytes, most: int) -> list[bytes]:
    """The lines, of which the last one need not be ended; raises `InvalidInput` where there are none, or too many."""
    count = body.count(b"\n") + (not body.endswith(b"\n"))
    if not body:
        raise InvalidInput("there must be at least one line", flaws=(Flaw("", "too_few", "there is no line"),))
    if count > most:
        flaw = Flaw("", "too_many", f"this has {count} lines")
        raise InvalidInput(f"a bulk post may have at most {most} lines", flaws=(flaw,))
    return body.split(b"\n", count)[:count]


def read_line(index: int, raw: bytes, caps: Caps) -> Line:
    """It has a refusal in place of a text where it is no JSON, not what a line has to be, or outside the caps of the model."""
    given = None
    try:
        if len(raw) > _ESCAPED * caps.characters_per_input + _REST:
            raise TooLarge("the line has more bytes than the longest text of this model and an id need")
        document = parse(raw, "line")
        given = _id(document)
        line = validate(document, BulkLine, "line")
        caps.admit((line.text,), "/text", _pointer)
    except Refusal as refusal:
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
