"""A text reaches the model as it was sent, byte for byte: by every task, in every spelling that JSON has for it."""

import json
import struct
from collections.abc import AsyncIterator
from random import Random
from typing import Any

import numpy as np
import pytest
import pytest_asyncio
import tritonclient.grpc.aio as triton_client
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.gateway.problems import CANARY
from tests.gateway.process import RunningGateway
from tests.peers import Triton

Pairs = list[tuple[bytes, bytes]]

ODD = "\x00\x1f\x7f\u0085\u2028\ufeff\ufffe\uffff\u0301\u05d0\u202e\U0001f468\u200d\U0010ffff\"\\/'<&"
"""Control characters, line separators, a byte order mark, what has no character, combining marks, right-to-left, quotes."""
UNICODE = st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from(ODD), max_size=40)
NOTABLE = [
    "",
    "\u0000",
    "".join(map(chr, range(32))) + "\u007f\u0080\u009f",
    f"\ufeff{CANARY}\ufeff",
    "\ufffe\uffff\U0010ffff\ufdd0",
    "\U0001f469\u200d\U0001f467 \U0001f1e9\U0001f1ea \U0001f44d\U0001f3fd",
    "\u05e9\u05dc\u05d5\u05dd \u0645\u0631\u062d\u0628\u0627 \u202e\u2066x\u2069",
    "\u00e9 e\u0301 \u1e9b\u0323",
    "\u2028\u2029\u0085\u00a0\u3000",
    '\\u0041 \\n \\" / \\/ \\ud800',
]
SHORT = {"\b": r"\b", "\f": r"\f", "\n": r"\n", "\r": r"\r", "\t": r"\t", '"': r"\"", "\\": r"\\", "/": r"\/"}
MUST_BE_ESCAPED = {*map(chr, range(32)), '"', "\\"}
TASKS: dict[str, dict[str, Any]] = {
    "classify": {"inputs": []},
    "entities": {"inputs": [], "include_text": True},
    "embeddings": {"input": []},
    "analyze": {"inputs": [], "features": ["mood"]},
    "rerank": {"documents": [], "query": ""},
}
calm = settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
several = st.lists(UNICODE, min_size=1, max_size=12)
spelling = st.integers(0, 2**32)


def spelled(value: Any, dice: Random, blanks: str = " \t\r\n") -> str:
    """JSON of `value`, with what is free in it left to the dice: escapes, the case of digits, blanks, the order of members."""

    def gap() -> str:
        return "".join(dice.choices(blanks, k=dice.randrange(3))) if blanks else ""

    if isinstance(value, str):
        return '"' + "".join(spelled_character(character, dice) for character in value) + '"'
    if isinstance(value, list):
        return "[" + ",".join(gap() + spelled(item, dice, blanks) + gap() for item in value) + "]"
    if isinstance(value, dict):
        members = dice.sample(list(value.items()), len(value))
        parts = (gap() + spelled(name, dice, blanks) + gap() + ":" + gap() + spelled(of, dice, blanks) for name, of in members)
        return gap() + "{" + ",".join(parts) + gap() + "}" + gap()
    return json.dumps(value)


def spelled_character(character: str, dice: Random) -> str:
    forms = [] if character in MUST_BE_ESCAPED else [character, character]
    if character in SHORT:
        forms.append(SHORT[character])
    units = struct.unpack(f">{len(character.encode('utf-16-be')) // 2}H", character.encode("utf-16-be"))
    forms.append("".join(f"\\u{unit:04{dice.choice('xX')}}" for unit in units))
    return dice.choice(forms)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def witness(small_triton: Triton) -> AsyncIterator["Witness"]:
    async with triton_client.InferenceServerClient(small_triton.grpc) as client:
        yield Witness(client)


class Witness:
    """The model behind all routes here, asked past the gateway for what it was given."""

    def __init__(self, client: Any) -> None:
        self._client = client

    async def seen(self) -> Pairs:
        """Each text, and the query beside it, since it was last asked."""
        tensors = [triton_client.InferInput(name, [1, 1], "BYTES") for name in ("TEXT", "QUERY")]
        for tensor in tensors:
            tensor.set_data_from_numpy(np.array([[b""]], object))
        answer = await self._client.infer("witness", tensors, outputs=[triton_client.InferRequestedOutput("SEEN")])
        flat = answer.as_numpy("SEEN").ravel().tolist()
        return list(zip(flat[::2], flat[1::2], strict=True))


async def post(gateway: RunningGateway, path: str, body: bytes, **headers: str) -> Any:
    """The answer, which is a good one."""
    fields = {"content-type": "application/json", **{name.replace("_", "-"): value for name, value in headers.items()}}
    answer = await gateway.client.post(path, content=body, headers={**gateway.tenants.authorization("open"), **fields})
    assert answer.status_code == 200, answer.text
    return answer


def asked(task: str, texts: list[str], query: str) -> tuple[dict[str, Any], Pairs]:
    """A request of the task, and what the model must be given."""
    body = {"model": f"seen-{task}", **TASKS[task]}
    body |= {name: texts for name, value in body.items() if value == []}
    if "query" in body:
        return {**body, "query": query}, [(text.encode(), query.encode()) for text in texts]
    return body, [(text.encode(), text.encode()) for text in texts]


@pytest.mark.parametrize("task", TASKS)
@calm
@given(texts=several, query=UNICODE, seed=spelling)
@example(texts=NOTABLE, query=NOTABLE[2], seed=1)
async def test_texts_of_a_task_arrive_byte_for_byte_and_in_order(
    gateway: RunningGateway, witness: Witness, task: str, texts: list[str], query: str, seed: int
) -> None:
    await witness.seen()
    body, expected = asked(task, texts, query)
    await post(gateway, f"/v1/{task}", spelled(body, Random(seed)).encode())
    assert await witness.seen() == expected


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("longer", ["text", "blanks"])
async def test_texts_of_a_large_body_which_is_read_in_turns_arrive_so_too(
    gateway: RunningGateway, witness: Witness, task: str, longer: str
) -> None:
    await witness.seen()
    factor = 80_000 if longer == "text" else 1
    body, expected = asked(task, ["\u00e4\U0001f600" * factor, *NOTABLE, *NOTABLE, '"\\\u0000' * factor], "\u00e4")
    written = json.dumps(body, ensure_ascii=False, indent=30_000 if longer == "blanks" else 1).encode()
    assert len(written) > 2**20
    await post(gateway, f"/v1/{task}", written)
    assert sorted(await witness.seen()) == sorted(expected)


@pytest.mark.parametrize("task", [task for task in TASKS if task != "rerank"])
@calm
@given(texts=several, seed=spelling)
@example(texts=NOTABLE, seed=1)
async def test_lines_of_a_bulk_post_arrive_byte_for_byte(
    gateway: RunningGateway, witness: Witness, task: str, texts: list[str], seed: int
) -> None:
    await witness.seen()
    dice = Random(seed)
    lines = [spelled({"text": text, "id": text}, dice, blanks=" \t\r").encode() + b"\n" for text in texts]
    answer = await post(gateway, f"/v1/bulk/{task}?model=seen-{task}", b"".join(lines), content_type="application/x-ndjson")
    assert sorted(await witness.seen()) == sorted((text.encode(), text.encode()) for text in texts)
    answered = [json.loads(line) for line in answer.content.splitlines()]
    assert [line["id"] for line in answered] == texts
    assert [line["result"]["tokens"] for line in answered] == [len(text.encode()) for text in texts]


@calm
@given(texts=several, queries=several, seed=spelling)
@example(texts=NOTABLE, queries=NOTABLE, seed=1)
async def test_tensors_of_texts_as_json_arrive_byte_for_byte(
    gateway: RunningGateway, witness: Witness, texts: list[str], queries: list[str], seed: int
) -> None:
    await witness.seen()
    pairs = list(zip(texts, queries, strict=False))
    tensors = [
        {"name": name, "shape": [len(pairs), 1], "datatype": "BYTES", "data": list(data)}
        for name, data in zip(("TEXT", "QUERY"), zip(*pairs, strict=True), strict=True)
    ]
    body = spelled({"inputs": tensors, "outputs": [{"name": "TOKENS"}]}, Random(seed))
    await post(gateway, "/v2/models/seen-infer/infer", body.encode())
    assert await witness.seen() == [(text.encode(), query.encode()) for text, query in pairs]


@calm
@given(elements=st.lists(st.tuples(st.binary(max_size=60), st.binary(max_size=60)), min_size=1, max_size=5))
async def test_tensors_of_any_bytes_arrive_as_they_are(gateway: RunningGateway, witness: Witness, elements: Pairs) -> None:
    await witness.seen()
    raws = [b"".join(struct.pack("<I", len(element)) + element for element in column) for column in zip(*elements, strict=True)]
    tensors = [
        {"name": name, "shape": [len(elements), 1], "datatype": "BYTES", "parameters": {"binary_data_size": len(raw)}}
        for name, raw in zip(("TEXT", "QUERY"), raws, strict=True)
    ]
    head = json.dumps({"inputs": tensors, "outputs": [{"name": "TOKENS"}]}).encode()
    sizes = {"inference_header_content_length": str(len(head))}
    await post(gateway, "/v2/models/seen-infer/infer", head + b"".join(raws), content_type="application/octet-stream", **sizes)
    assert await witness.seen() == elements
