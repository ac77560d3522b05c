"""A text reaches the model as it was sent, byte for byte."""

import json
from hashlib import sha256

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.gateway.problems import CANARY
from tests.gateway.process import RunningGateway

UNICODE = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)
NOTABLE = {
    "empty": "",
    "NUL": "\u0000",
    "every control character": "".join(map(chr, range(32))) + "\u007f\u0080\u009f",
    "a BOM within": f"\ufeff{CANARY}\ufeff",
    "not characters": "\ufffe\uffff\U0010ffff\ufdd0",
    "emoji": "\U0001f469\u200d\U0001f467 \U0001f1e9\U0001f1ea \U0001f44d\U0001f3fd",
    "right to left": "\u05e9\u05dc\u05d5\u05dd \u0645\u0631\u062d\u0628\u0627 \u202e\u2066x\u2069",
    "composed and decomposed": "\u00e9 e\u0301 \u1e9b\u0323",
    "separators": "\u2028\u2029\u0085\u00a0\u3000",
    "escapes": '\\u0041 \\n \\" / \\/',
    "long": "\u00e4\U0001f600" * 50_000,
}


def digest(text: str) -> list[float]:
    return [float(byte) for byte in sha256(text.encode()).digest()]


async def vectors(gateway: RunningGateway, texts: list[str], *, escaped: bool) -> list[list[float]]:
    body = json.dumps({"model": "echo", "input": texts}, ensure_ascii=escaped).encode()
    headers = {**gateway.tenants.authorization("open"), "content-type": "application/json"}
    answer = await gateway.client.post("/v1/embeddings", content=body, headers=headers)
    assert answer.status_code == 200, answer.text
    return [entry["embedding"] for entry in answer.json()["data"]]


@pytest.mark.parametrize("escaped", [True, False])
@pytest.mark.parametrize("text", NOTABLE.values(), ids=NOTABLE)
async def test_a_notable_text_arrives_byte_for_byte(gateway: RunningGateway, text: str, escaped: bool) -> None:
    assert await vectors(gateway, [text], escaped=escaped) == [digest(text)]


@settings(max_examples=60, deadline=None)
@given(texts=st.lists(UNICODE, min_size=1, max_size=20), escaped=st.booleans())
async def test_any_texts_arrive_byte_for_byte_and_in_order(gateway: RunningGateway, texts: list[str], escaped: bool) -> None:
    assert await vectors(gateway, texts, escaped=escaped) == [digest(text) for text in texts]
