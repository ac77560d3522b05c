"""Bytes to typed requests, strictly; nothing that a caller sent is ever repeated in an error."""

import asyncio
import re
from dataclasses import dataclass
from typing import TypeVar

import jiter
from pydantic import BaseModel, ValidationError
from starlette.requests import Request

from app.api.schemas import MAX_TIMEOUT_MS
from app.errors import ClientClosed, Flaw, InvalidInput, Malformed, RequestTimeout, TooLarge, UnsupportedMedia
from app.routing.route import MAX_FLAWS

Parsed = TypeVar("Parsed", bound=BaseModel)

_JSON = re.compile(r'application/json\s*(;\s*charset="?utf-8"?\s*)?', re.IGNORECASE)
_TIMEOUT = re.compile(r"[0-9]{1,9}")
_PLACE = re.compile(r"at line \d+ column \d+$")
_FAULTS = {
    "missing": "this member is required",
    "extra_forbidden": "it has a member that is not known here",
    "string_type": "this must be a string",
    "int_type": "this must be an integer",
    "bool_type": "this must be true or false",
    "list_type": "this must be a list",
    "model_type": "this must be an object",
}
"""By pydantic's type of error. Its own messages may quote the input, so that the others are told by their constraint alone."""


@dataclass(frozen=True, slots=True)
class BodyLimits:
    max_bytes: int
    seconds: float


async def read_json(request: Request, limits: BodyLimits, shape: type[Parsed]) -> Parsed:
    """The body as `shape`; raises one of the family's 4xx."""
    content_type = request.headers.get("content-type", "")
    if not _JSON.fullmatch(content_type):
        raise UnsupportedMedia("the body must be application/json, in UTF-8")
    return _validated(_parsed(await _read(request, limits)), shape)


def timeout_of(header: str) -> int:
    """The milliseconds that `X-Request-Timeout-Ms` gives."""
    if not _TIMEOUT.fullmatch(header) or not 1 <= int(header) <= MAX_TIMEOUT_MS:
        raise Malformed(f"X-Request-Timeout-Ms must be a number from 1 to {MAX_TIMEOUT_MS}")
    return int(header)


async def _read(request: Request, limits: BodyLimits) -> bytes:
    message = None
    chunks: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(limits.seconds):
            while message is None or message.get("more_body"):
                message = await request.receive()
                if message["type"] == "http.disconnect":
                    raise ClientClosed("the caller left before the body was complete")
                chunks.append(message.get("body", b""))
                size += len(chunks[-1])
                if size > limits.max_bytes:
                    raise TooLarge(f"a body may have at most {limits.max_bytes} bytes")
    except TimeoutError:
        raise RequestTimeout("the body did not arrive in time", headers=(("connection", "close"),)) from None
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)


def _parsed(body: bytes) -> object:
    try:
        return jiter.from_json(body, allow_inf_nan=False, catch_duplicate_keys=True, cache_mode="none")
    except ValueError as error:
        message = str(error)
        place = _PLACE.search(message)
        raise Malformed(
            f"the body is not JSON as this gateway takes it: {_reason(message)}{f', {place[0]}' if place else ''}"
        ) from None


def _reason(message: str) -> str:
    if message.startswith("Detected duplicate key"):
        return "an object has a member twice"
    if message.startswith("recursion limit"):
        return "it is nested too deeply"
    if message.startswith(("invalid unicode", "unexpected end of hex", "lone")):
        return "a string is not valid Unicode"
    return "its syntax is broken"


def _validated(document: object, shape: type[Parsed]) -> Parsed:
    try:
        return shape.model_validate(document)
    except ValidationError as error:
        faults = error.errors(include_url=False, include_input=False, include_context=True)
        flaws = tuple(dict.fromkeys(_flaw(shape, fault["loc"], fault["type"], fault.get("ctx", {})) for fault in faults))
        raise InvalidInput("the body has members or values that are not allowed here", flaws=flaws[:MAX_FLAWS]) from None


def _flaw(shape: type[BaseModel], loc: tuple[int | str, ...], kind: str, context: dict[str, object]) -> Flaw:
    # A member's name is the caller's own words unless it is one of ours.
    if kind == "extra_forbidden":
        return Flaw("", "unknown_member", f"{_FAULTS[kind]}; known are {', '.join(shape.model_fields)}")
    parts = [str(part) for part in loc if isinstance(part, int) or part in shape.model_fields]
    return Flaw("".join(f"/{part}" for part in parts), kind, _FAULTS.get(kind) or _bound(kind, context))


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
