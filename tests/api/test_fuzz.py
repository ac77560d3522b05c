"""Whatever is sent: never a 500, and never Triton's words."""

import json
from typing import Any

import grpc
import httpx
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.fakes.triton import FakeTriton, aborting
from tests.gateway.process import RunningGateway

calm = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])

BODIES: dict[str, dict[str, Any]] = {
    "classify": {"model": "lax", "inputs": ["a"], "top_k": 1, "truncate": True, "timeout_ms": 9000},
    "entities": {"model": "spans", "inputs": ["a"], "offsets": "utf16", "include_text": True},
    "embeddings": {"model": "vectors", "input": ["a"], "encoding_format": "base64", "user": "u"},
    "analyze": {"model": "heads", "inputs": ["a"], "features": ["mood"], "encoding_format": "float"},
    "rerank": {"model": "pairs", "query": "q", "documents": ["a"], "top_n": 1, "return_documents": True},
}
TASKS = st.sampled_from(sorted(BODIES))
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
WORDS_OF_TRITON = "onnx-runtime-says"


async def send(gateway: RunningGateway, task: str, body: bytes) -> httpx.Response:
    headers = {**gateway.tenants.authorization("open"), "content-type": "application/json"}
    return await gateway.client.post(f"/v1/{task}", content=body, headers=headers)


def assert_calm(answer: httpx.Response) -> None:
    assert answer.status_code in (200, 400, 404, 413, 422), answer.text
    kind = "application/json" if answer.status_code == 200 else "application/problem+json"
    assert answer.headers["content-type"] == kind
    answer.json()


@calm
@given(task=TASKS, body=st.binary(max_size=80))
@example(task="classify", body=b"\xef\xbb\xbf{}")
@example(task="classify", body=b'{"model":"lax","inputs":["\xed\xa0\x80"]}')
@example(task="classify", body=b'{"model":"lax","inputs":["\\ud800"]}')
@example(task="classify", body=b"[" * 5000)
@example(task="embeddings", body=b'{"model":"vectors","input":[1,2,3]}')
@example(task="embeddings", body=b'{"model":"vectors","input":' + b"9" * 5000 + b"}")
@example(task="classify", body=b'{"model":"lax","inputs":["a"],"top_k":1e400}')
async def test_bytes_never_break_it(staged: RunningGateway, task: str, body: bytes) -> None:
    assert_calm(await send(staged, task, body))


@calm
@given(task=TASKS, data=st.data())
async def test_bytes_changed_in_a_good_body_never_break_it(staged: RunningGateway, task: str, data: st.DataObject) -> None:
    body = bytearray(json.dumps(BODIES[task]).encode())
    for _ in range(data.draw(st.integers(1, 4))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    assert_calm(await send(staged, task, bytes(body)))


@calm
@given(task=TASKS, data=st.data(), value=ANYTHING)
async def test_a_member_of_any_kind_never_breaks_it(
    staged: RunningGateway, task: str, data: st.DataObject, value: object
) -> None:
    member = data.draw(st.sampled_from(sorted(BODIES[task])) | st.text(max_size=5))
    assert_calm(await send(staged, task, json.dumps({**BODIES[task], member: value}).encode()))


@pytest.mark.parametrize("task", sorted(BODIES))
@pytest.mark.parametrize("code", [grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN])
async def test_triton_s_words_go_no_further(
    staged: RunningGateway, stage: FakeTriton, task: str, code: grpc.StatusCode
) -> None:
    model = {"lax": "words"}.get(BODIES[task]["model"], BODIES[task]["model"])
    stage.behaviours[model] = aborting(code, WORDS_OF_TRITON)
    answer = await send(staged, task, json.dumps(BODIES[task]).encode())
    assert answer.status_code in (422, 502, 503), answer.text
    assert WORDS_OF_TRITON not in answer.text + str(answer.headers)
