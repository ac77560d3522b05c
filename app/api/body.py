"""Bytes to typed requests, strictly; nothing that a caller sent is ever repeated in an error."""

import asyncio
import re
from dataclasses import dataclass, field
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError
from starlette.requests import Request

from app.api.hold import Hold
from app.api.json_text import parse_calmly
from app.api.schemas import MAX_TIMEOUT_MS
from app.api.turns import Turn, let_go
from app.errors import ClientClosed, Flaw, InvalidInput, Malformed, Refusal, RequestTimeout, TooLarge, UnsupportedMedia
from app.routing.route import MAX_FLAWS, MOST_INPUTS

Parsed = TypeVar("Parsed", bound=BaseModel)

_JSON = re.compile(r'application/json\s*(;\s*charset="?utf-8"?\s*)?', re.IGNORECASE)
_TIMEOUT = re.compile(r"[0-9]{1,9}")
_PART = 256
_HELD_BYTES = 8 * 1024 * 1024
_FAULTS = {
    "missing": "this member is required",
    "extra_forbidden": "it has a member that is not known here",
    "string_type": "this must be a string",
    "int_type": "this must be an integer",
    "int_parsing": "this must be an integer",
    "bool_type": "this must be true or false",
    "bool_parsing": "this must be true or false",
    "list_type": "this must be a list",
    "model_type": "this must be an object",
}
"""By pydantic's type of error. Its own messages may quote the input, so that the others are told by their constraint alone."""


@dataclass(frozen=True, slots=True)
class BodyLimits:
    max_bytes: int
    seconds: float
    hold: Hold
    turns: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Of large bodies, one at a time is parsed."""


async def read_json(request: Request, limits: BodyLimits, shape: type[Parsed]) -> Parsed:
    """The body as `shape`; raises one of the family's 4xx."""
    content_type = request.headers.get("content-type", "")
    if not _JSON.fullmatch(content_type):
        raise UnsupportedMedia("the body must be application/json, in UTF-8")
    body = await gathered(request, limits)
    try:
        document = await parse_calmly(body, limits.turns)
    finally:
        await _shrink(body)
    try:
        return await validate_calmly(document, shape)
    except Refusal:
        await let_go(document, Turn())
        raise


def timeout_of(header: str) -> int:
    """The milliseconds that `X-Request-Timeout-Ms` gives."""
    if not _TIMEOUT.fullmatch(header) or not 1 <= int(header) <= MAX_TIMEOUT_MS:
        raise Malformed(f"X-Request-Timeout-Ms must be a number from 1 to {MAX_TIMEOUT_MS}")
    return int(header)


async def gathered(request: Request, limits: BodyLimits) -> bytes | bytearray:
    """The body; raises one of the family's 4xx."""
    try:
        async with asyncio.timeout(limits.seconds):
            body, is_over = await _piece(request)
            if is_over and len(body) <= limits.max_bytes:
                return body
            whole = bytearray()
            with limits.hold.stowing(request.state.principal.tenant.id) as stow:
                while len(whole) + len(body) <= limits.max_bytes:
                    stow(len(body))
                    whole += body
                    if is_over:
                        return whole
                    body, is_over = await _piece(request)
    except TimeoutError:
        raise RequestTimeout("the body did not arrive in time", headers=(("connection", "close"),)) from None
    raise TooLarge(f"a body may have at most {limits.max_bytes} bytes")


async def _shrink(body: bytes | bytearray) -> None:
    """Half by half: to give 50 MB back to the kernel at once takes 10 ms."""
    while isinstance(body, bytearray) and len(body) > _HELD_BYTES:
        del body[len(body) // 2 - 1 :]
        await asyncio.sleep(0)


async def _piece(request: Request) -> tuple[bytes, bool]:
    message = await request.receive()
    if message["type"] == "http.disconnect":
        raise ClientClosed("the caller left before the body was complete")
    return message.get("body", b""), not message.get("more_body")


def validate(document: object, shape: type[Parsed], whole: str = "body", start: int = 0) -> Parsed:
    """`start` is the place of the first item in a list of which only a part is there."""
    try:
        return shape.model_validate(document)
    except ValidationError as error:
        raise outside(error, shape, whole, start) from None


async def validate_calmly(document: object, shape: type[Parsed]) -> Parsed:
    """Of a long list part by part, in turns, and up to the first that has a fault, since each fault costs microseconds."""
    name = _longest(document, shape)
    if not isinstance(document, dict) or name is None:
        return validate(document, shape)
    items, turn = document[name], Turn()
    first = validate({**document, name: items[:_PART]}, shape)
    for start in range(_PART, len(items), _PART):
        await turn.pause()
        part = validate({**document, name: items[start : start + _PART]}, shape, start=start)
        getattr(first, name).extend(getattr(part, name))
    await turn.pause()
    return first


def _longest(document: object, shape: type[BaseModel]) -> str | None:
    """The member with the longest list, where that is long: no shape has two that may be."""
    if not isinstance(document, dict):
        return None
    lengths = {name: len(value) for name, value in document.items() if isinstance(value, list) and len(value) > _PART}
    name = max(lengths, key=lengths.__getitem__, default=None)
    if name is not None and lengths[name] > MOST_INPUTS:
        flaw = Flaw(
            f"/{name}" if name in shape.model_fields else "",
            "too_many",
            f"at most {MOST_INPUTS}, and each model has a cap of its own",
        )
        raise InvalidInput("a list of the body is too long", flaws=(flaw,))
    return name


def outside(error: ValidationError, shape: type[BaseModel], whole: str, start: int = 0) -> InvalidInput:
    """`start` is the place of the first item of each long list that was looked at."""
    faults = error.errors(include_url=False, include_input=False) if error.error_count() <= 4 * _PART else ()
    flaws: dict[Flaw, None] = {}
    for fault in faults:
        flaws[_flaw(shape, _moved(fault["loc"], start), fault["type"], fault.get("ctx", {}))] = None
        if len(flaws) == MAX_FLAWS:
            break
    return InvalidInput(f"the {whole} has members or values that are not allowed here", flaws=tuple(flaws))


def _moved(loc: tuple[int | str, ...], start: int) -> tuple[int | str, ...]:
    at = next((at for at, part in enumerate(loc) if isinstance(part, int)), None)
    return loc if not start or at is None else (*loc[:at], int(loc[at]) + start, *loc[at + 1 :])


def _flaw(shape: type[BaseModel], loc: tuple[int | str, ...], kind: str, context: dict[str, object]) -> Flaw:
    # A member's name is the caller's own words unless it is one of ours.
    pointer = ""
    for part in loc:
        if isinstance(part, int) or part in shape.model_fields:
            pointer += f"/{part}"
        if isinstance(part, str) and part in shape.model_fields:
            shape = _nested(shape.model_fields[part].annotation) or shape
    if kind == "extra_forbidden":
        return Flaw(pointer, "unknown_member", f"{_FAULTS[kind]}; known are {', '.join(shape.model_fields)}")
    code = "object_type" if kind == "model_type" else kind  # a model is something else here
    return Flaw(pointer, code, _FAULTS.get(kind) or _bound(kind, context))


def _nested(annotation: Any) -> type[BaseModel] | None:
    """The model that a member is, or holds."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for part in get_args(annotation) if (found := _nested(part))), None)


def _bound(kind: str, context: dict[str, object]) -> str:
    for key, words in (
        ("ge", "at least"),
        ("le", "at most"),
        ("gt", "more than"),
        ("min_length", "at least"),
        ("max_length", "at most"),
    ):
        if key in context:
            return f"this must be {words} {context[key]}{' long' if key.endswith('length') else ''}"
    if kind == "literal_error":
        return f"this must be {context['expected']}"
    return "this is not a value that is allowed here"
