"""Every way in which a request can be wrong: the right answer, and nothing of it repeated."""

import json
from typing import Any

import httpx
import pytest

from tests.fakes.triton import FakeTriton
from tests.gateway.problems import CANARY, assert_problem
from tests.gateway.process import RunningGateway

JSON = {"content-type": "application/json"}
TASKS = [
    ("/v1/classify", "words", "inputs"),
    ("/v1/embeddings", "vectors", "input"),
    ("/v1/entities", "spans", "inputs"),
    ("/v1/analyze", "heads", "inputs"),
]
every_task = pytest.mark.parametrize(("path", "model", "field"), TASKS, ids=[path.rpartition("/")[2] for path, *_ in TASKS])


async def send(gateway: RunningGateway, path: str, body: bytes, headers: dict[str, str] = JSON) -> httpx.Response:
    return await gateway.client.post(path, content=body, headers={**gateway.tenants.authorization("open"), **headers})


def body(model: str, field: str, texts: bytes) -> bytes:
    return b'{"model":"%s","%s":%s}' % (model.encode(), field.encode(), texts)


BYTES = {
    "nothing": b"",
    "only blanks": b" \n",
    "no JSON": CANARY.encode(),
    "a JSON that ends early": b'{"model":"' + CANARY.encode(),
    "two documents": b'{"model":"m"} {"' + CANARY.encode() + b'":1}',
    "a trailing comma": b'{"model":"' + CANARY.encode() + b'",}',
    "single quotes": b"{'model':'" + CANARY.encode() + b"'}",
    "a leading BOM": b'\xef\xbb\xbf{"model":"' + CANARY.encode() + b'"}',
    "UTF-16": f'{{"model":"{CANARY}"}}'.encode("utf-16"),
    "a member twice": b'{"model":"a","model":"' + CANARY.encode() + b'"}',
    "a member of the caller's own twice": b'{"%(c)b":1,"%(c)b":2}' % {b"c": CANARY.encode()},
    "10,000 lists in each other": b"[" * 10_000 + CANARY.encode(),
    "10,000 objects in each other": b'{"a":' * 10_000 + CANARY.encode(),
}


@every_task
@pytest.mark.parametrize("content", BYTES.values(), ids=BYTES)
async def test_bytes_that_are_no_request_are_malformed(
    staged: RunningGateway, path: str, model: str, field: str, content: bytes
) -> None:
    problem = assert_problem(await send(staged, path, content), 400, "malformed_request")
    assert (problem.detail == "The body is empty.") == (not content.strip())


STRINGS = {
    "NaN": b"NaN",
    "Infinity": b"Infinity",
    "minus Infinity": b"-Infinity",
    "a lone high surrogate": rb'"\ud800"',
    "a lone low surrogate": rb'"\udc00 %s"' % CANARY.encode(),
    "surrogates the wrong way round": rb'"\ude00\ud83d"',
    "a raw NUL": b'"\x00"',
    "a raw line feed": b'"\n"',
    "invalid UTF-8": b'"\xff"',
    "UTF-8 cut short": b'"\xe2\x82"',
    "overlong UTF-8": b'"\xc0\xaf"',
    "CESU-8": b'"\xed\xa0\xbd\xed\xb8\x80"',
    "a code point above Unicode's": b'"\xf4\x90\x80\x80"',
    "an escape that is none": rb'"\x41"',
    "half an escape": rb'"\u12"',
}


@every_task
@pytest.mark.parametrize("text", STRINGS.values(), ids=STRINGS)
async def test_a_string_that_is_no_unicode_is_malformed(
    staged: RunningGateway, path: str, model: str, field: str, text: bytes
) -> None:
    content = body(model, field, b'["%s",%s]' % (CANARY.encode(), text))
    assert_problem(await send(staged, path, content), 400, "malformed_request")


TEXT = CANARY
MEMBERS: list[tuple[str, dict[str, Any], tuple[str, ...]]] = [
    ("the model is a number", {"model": 5}, ("/model",)),
    ("the model is null", {"model": None}, ("/model",)),
    ("the model has no name", {"model": ""}, ("/model",)),
    ("the model's name is long", {"model": CANARY * 20}, ("/model",)),
    ("a text is a number", {"TEXTS": [TEXT, 1]}, ("/TEXTS/1",)),
    ("a text is null", {"TEXTS": [None]}, ("/TEXTS/0",)),
    ("a text is a list", {"TEXTS": [TEXT, [TEXT]]}, ("/TEXTS/1",)),
    ("a text is an object", {"TEXTS": [TEXT, TEXT, {"a": TEXT}]}, ("/TEXTS/2",)),
    ("an unknown member", {CANARY: TEXT}, ("",)),
    ("there is no text", {"TEXTS": []}, ("/TEXTS",)),
    ("a text is empty", {"TEXTS": [TEXT, ""]}, ("/TEXTS/1",)),
    ("a text is too long", {"TEXTS": ["a", TEXT * 20]}, ("/TEXTS/1",)),
    ("10,001 texts", {"TEXTS": [TEXT] * 10_001}, ("/TEXTS",)),
    ("too many characters together", {"TEXTS": [TEXT * 10] * 800}, ("/TEXTS",)),
    ("truncate is a word", {"truncate": CANARY}, ("/truncate",)),
    ("truncate is a number", {"truncate": 1}, ("/truncate",)),
    ("truncate is null", {"truncate": None}, ("/truncate",)),
    ("timeout_ms is 0", {"timeout_ms": 0}, ("/timeout_ms",)),
    ("timeout_ms is below 0", {"timeout_ms": -1}, ("/timeout_ms",)),
    ("timeout_ms is above all", {"timeout_ms": 3_600_001}, ("/timeout_ms",)),
    ("timeout_ms is beyond 64 bits", {"timeout_ms": 10**30}, ("/timeout_ms",)),
    ("timeout_ms is a fraction", {"timeout_ms": 1.5}, ("/timeout_ms",)),
    ("timeout_ms is a word", {"timeout_ms": CANARY}, ("/timeout_ms",)),
    ("timeout_ms is true", {"timeout_ms": True}, ("/timeout_ms",)),
]


@every_task
@pytest.mark.parametrize(("members", "pointers"), [row[1:] for row in MEMBERS], ids=[row[0] for row in MEMBERS])
async def test_members_outside_the_rules_are_pointed_to(
    staged: RunningGateway, path: str, model: str, field: str, members: dict[str, Any], pointers: tuple[str, ...]
) -> None:
    given = {field if name == "TEXTS" else name: value for name, value in members.items()}
    answer = await staged.post(path, {"model": model, field: [TEXT], **given})
    problem = assert_problem(answer, 422, "invalid_input")
    assert {flaw.pointer for flaw in problem.errors or ()} == {pointer.replace("TEXTS", field) for pointer in pointers}


OWN: list[tuple[str, dict[str, Any], str]] = [
    ("/v1/classify", {"top_k": 0}, "/top_k"),
    ("/v1/classify", {"top_k": -1}, "/top_k"),
    ("/v1/classify", {"top_k": 10_001}, "/top_k"),
    ("/v1/classify", {"top_k": "5"}, "/top_k"),
    ("/v1/classify", {"top_k": 1.5}, "/top_k"),
    ("/v1/classify", {"top_k": True}, "/top_k"),
    ("/v1/classify", {"inputs": CANARY}, "/inputs"),
    ("/v1/classify", {"model": "vectors"}, "/model"),
    ("/v1/embeddings", {"encoding_format": CANARY}, "/encoding_format"),
    ("/v1/embeddings", {"dimensions": 0}, "/dimensions"),
    ("/v1/embeddings", {"dimensions": 7}, "/dimensions"),
    ("/v1/embeddings", {"dimensions": "8"}, "/dimensions"),
    ("/v1/embeddings", {"user": 5}, "/user"),
    ("/v1/embeddings", {"user": CANARY * 20}, "/user"),
    ("/v1/embeddings", {"input": ""}, "/input"),
    ("/v1/embeddings", {"input": TEXT * 20}, "/input"),
    ("/v1/embeddings", {"model": "words"}, "/model"),
    ("/v1/entities", {"offsets": CANARY}, "/offsets"),
    ("/v1/entities", {"offsets": 5}, "/offsets"),
    ("/v1/entities", {"include_text": "yes"}, "/include_text"),
    ("/v1/entities", {"model": "heads"}, "/model"),
    ("/v1/analyze", {"features": [CANARY]}, "/features/0"),
    ("/v1/analyze", {"features": ["mood", "tokens"]}, "/features/1"),
    ("/v1/analyze", {"features": "mood"}, "/features"),
    ("/v1/analyze", {"features": ["mood"] * 33}, "/features"),
    ("/v1/analyze", {"top_k": 0}, "/top_k"),
    ("/v1/analyze", {"encoding_format": None}, "/encoding_format"),
    ("/v1/analyze", {"model": "words"}, "/model"),
]


@pytest.mark.parametrize(("path", "members", "pointer"), OWN, ids=lambda value: str(value)[:40])
async def test_members_of_one_task_outside_its_rules_are_pointed_to(
    staged: RunningGateway, stage: FakeTriton, path: str, members: dict[str, Any], pointer: str
) -> None:
    model, field = next((model, field) for other, model, field in TASKS if other == path)
    answer = await staged.post(path, {"model": model, field: [TEXT], **members})
    assert_problem(answer, 422, "invalid_input", pointer)
    assert not stage.asked, "what is known to be refused costs Triton nothing"


@every_task
@pytest.mark.parametrize("document", [[TEXT], TEXT, 5, None, True])
async def test_json_that_is_no_object_is_outside_the_rules(
    staged: RunningGateway, path: str, model: str, field: str, document: Any
) -> None:
    problem = assert_problem(await send(staged, path, json.dumps(document).encode()), 422, "invalid_input", "")
    assert [flaw.code for flaw in problem.errors or ()] == ["object_type"]


@every_task
async def test_a_missing_member_is_named(staged: RunningGateway, path: str, model: str, field: str) -> None:
    assert_problem(await staged.post(path, {"model": model}), 422, "invalid_input", f"/{field}")


@every_task
async def test_many_faults_are_told_up_to_sixteen(staged: RunningGateway, path: str, model: str, field: str) -> None:
    answer = await staged.post(path, {"model": model, field: [TEXT, *[1] * 100]})
    problem = assert_problem(answer, 422, "invalid_input")
    assert len(problem.errors or ()) == 16


@every_task
async def test_an_unknown_model_is_not_found(staged: RunningGateway, path: str, model: str, field: str) -> None:
    assert_problem(await staged.post(path, {"model": CANARY, field: [TEXT]}), 404, "unknown_model")


async def test_an_empty_text_is_answered_where_its_route_allows_it(staged: RunningGateway, stage: FakeTriton) -> None:
    answer = await staged.classify("", "a", model="lax")
    assert answer.status_code == 200
    assert stage.asked[0].texts == [b"", b"a"]
