"""A JSON text, read strictly and at once: no duplicate members, no NaN, no lone surrogates, and nothing nested deeply."""

import re
from typing import Any

import jiter

from app.errors import Malformed

DEEPEST = 32
"""Levels of lists and objects. The parser itself takes 200."""
BLANKS = b" \t\r\n"
TWICE = "an object has a member twice"
TOO_DEEP = f"it is nested more than {DEEPEST} levels deep"

_PLACE = re.compile(r"at line \d+ column \d+$")


def parse(text: bytes, whole: str = "body") -> object:
    """The JSON of a body, or of whatever else is `whole`, at once."""
    try:
        document = jiter.from_json(text, allow_inf_nan=False, catch_duplicate_keys=True, cache_mode="none")
    except ValueError as error:
        if not text.strip(BLANKS):
            raise Malformed(f"the {whole} is empty") from None
        message = str(error)
        place = _PLACE.search(message)
        raise malformed(whole, _reason(message), f", {place[0]}" if place else "") from None
    if _may_be_deep(text) and _is_deep(document):
        raise malformed(whole, TOO_DEEP)
    return document


def _may_be_deep(text: bytes) -> bool:
    """Whether there are brackets enough. To find the few that most texts have is ten times as quick as to count them."""
    left = DEEPEST
    for bracket in b"[{":
        at = text.find(bracket)
        while at >= 0:
            if not left:
                return True
            left -= 1
            at = text.find(bracket, at + 1)
    return False


def _is_deep(document: Any) -> bool:
    level = [document] if type(document) in (list, dict) else []
    for _ in range(DEEPEST):
        within = [one if type(one) is list else one.values() for one in level]
        level = [item for items in within for item in items if type(item) is list or type(item) is dict]
        if not level:
            return False
    return True


def malformed(whole: str = "body", reason: str = "its syntax is broken", place: str = "") -> Malformed:
    return Malformed(f"the {whole} is not JSON as this gateway takes it: {reason}{place}")


def _reason(message: str) -> str:
    if message.startswith("Detected duplicate key"):
        return TWICE
    if message.startswith("recursion limit"):
        return TOO_DEEP
    if message.startswith(("invalid unicode", "unexpected end of hex", "lone")):
        return "a string is not valid Unicode"
    return "its syntax is broken"
