"""What docs/http.md says of numbers and headers is so."""

import re
from pathlib import Path

import pytest

from app.api import json_text, strict_json, turns
from app.edge import perimeter, wire
from tests.fakes.triton import FakeTriton
from tests.gateway.process import RunningGateway

TEXT = (Path(__file__).resolve().parents[2] / "docs" / "http.md").read_text(encoding="utf-8")
NUMBERS = {
    "at most {} fields": wire._MAX_FIELDS,
    "At most {} bytes for the path": perimeter._URI_BYTES,
    "at most {} levels": strict_json.DEEPEST,
    "no string of more than {} bytes": json_text.STRING_BYTES,
    "no object of more than {} members": json_text._MOST_MEMBERS,
    "no more than {} blanks": json_text._IDLE_BYTES,
    "t most {} strings, lists and objects": json_text._MOST_VALUES,
    "at most {} times their content": wire._FRAMING,
    "in turns of {} ms": int(turns.TURN_SECONDS * 1000),
}


@pytest.mark.parametrize(("sentence", "number"), NUMBERS.items())
def test_each_number_is_the_one_that_holds(sentence: str, number: int) -> None:
    assert sentence.format(number) in TEXT


def documented(section: str) -> set[str]:
    rows = TEXT.split(f"## {section}\n")[1].split("\n## ")[0]
    return {name.lower() for row in re.findall(r"^\| (`.*?) \|", rows, re.MULTILINE) for name in re.findall(r"`([\w-]+)`", row)}


async def test_an_answer_has_no_header_that_is_not_documented(staged: RunningGateway, stage: FakeTriton) -> None:
    known = documented("Headers of an answer") | {"date", "content-type", "content-length", "cache-control", "connection"}
    known |= {"content-encoding", "x-content-type-options"}
    for answer in (
        await staged.classify("a", model="words"),
        await staged.classify("a", model="words", tenant="tight-at-once"),
        await staged.client.get("/v1/models"),
        await staged.client.options("/v1/models"),
        await staged.get("/nowhere"),
    ):
        assert set(answer.headers) <= known
