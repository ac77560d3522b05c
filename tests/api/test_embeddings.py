"""OpenAI's shape, to the letter that its own SDK relies on."""

from array import array
from base64 import b64decode
from collections.abc import AsyncIterator
from typing import Any

import openai
import pytest
import pytest_asyncio

from app.api.schemas import EmbeddingsResponse
from tests.gateway.problems import CANARY
from tests.gateway.process import RunningGateway


async def test_base64_holds_the_same_numbers_as_the_list(gateway: RunningGateway) -> None:
    body = {"model": "echo", "input": [CANARY, "b"]}
    floats = (await gateway.post("/v1/embeddings", body)).json()
    packed = (await gateway.post("/v1/embeddings", {**body, "encoding_format": "base64"})).json()
    for plain, encoded in zip(floats["data"], packed["data"], strict=True):
        assert array("f", b64decode(encoded["embedding"])).tolist() == plain["embedding"]
    assert floats["usage"] == packed["usage"] == {"prompt_tokens": len(CANARY) + 1, "total_tokens": len(CANARY) + 1}
    EmbeddingsResponse.model_validate(floats)


async def test_a_single_text_is_a_list_of_one(gateway: RunningGateway) -> None:
    single = (await gateway.post("/v1/embeddings", {"model": "echo", "input": CANARY})).json()
    assert single == (await gateway.post("/v1/embeddings", {"model": "echo", "input": [CANARY]})).json()


async def test_the_model_s_own_dimensions_may_be_asked_for(gateway: RunningGateway) -> None:
    answer = await gateway.post("/v1/embeddings", {"model": "echo", "input": CANARY, "dimensions": 32})
    assert len(answer.json()["data"][0]["embedding"]) == 32


@pytest_asyncio.fixture(loop_scope="session")
async def sdk(gateway: RunningGateway) -> AsyncIterator[openai.AsyncOpenAI]:
    key = gateway.tenants.keys["open"]
    async with openai.AsyncOpenAI(api_key=key, base_url=f"{gateway.address.url}/v1", max_retries=0) as client:
        yield client


async def test_openai_s_sdk_reads_vectors(gateway: RunningGateway, sdk: openai.AsyncOpenAI) -> None:
    answer = await sdk.embeddings.create(model="echo", input=["a", CANARY], user="somebody")
    direct = (await gateway.post("/v1/embeddings", {"model": "echo", "input": ["a", CANARY]})).json()
    assert [entry.embedding for entry in answer.data] == [entry["embedding"] for entry in direct["data"]]
    assert answer.usage.total_tokens == len(CANARY) + 1
    floats = await sdk.embeddings.create(model="echo", input="a", encoding_format="float")
    assert floats.data[0].embedding == answer.data[0].embedding


async def test_openai_s_sdk_lists_the_models(sdk: openai.AsyncOpenAI) -> None:
    assert "echo" in [model.id async for model in sdk.models.list()]
    assert (await sdk.models.retrieve("echo")).owned_by == "conch"


ERRORS = [
    ({"model": CANARY, "input": "a"}, "open", openai.NotFoundError, "unknown_model"),
    ({"model": "echo", "input": []}, "open", openai.UnprocessableEntityError, "invalid_input"),
    ({"model": "echo", "input": "a"}, "expired", openai.AuthenticationError, "unauthenticated"),
    ({"model": "echo", "input": "a"}, "scopeless", openai.PermissionDeniedError, "forbidden"),
]


@pytest.mark.parametrize(("arguments", "tenant", "error", "code"), ERRORS, ids=[row[3] for row in ERRORS])
async def test_an_error_becomes_openai_s_own(
    gateway: RunningGateway,
    sdk: openai.AsyncOpenAI,
    arguments: dict[str, Any],
    tenant: str,
    error: type[openai.APIStatusError],
    code: str,
) -> None:
    with pytest.raises(error) as raised:
        await sdk.with_options(api_key=gateway.tenants.keys[tenant]).embeddings.create(**arguments)
    assert raised.value.code == code
    assert raised.value.request_id


async def test_a_rate_limit_becomes_openai_s_own_and_its_retry_succeeds(
    gateway: RunningGateway, sdk: openai.AsyncOpenAI
) -> None:
    tight = sdk.with_options(api_key=gateway.tenants.keys["tight-for-openai"])

    async def ask_on() -> None:
        while True:
            await tight.embeddings.create(model="echo", input="a")

    with pytest.raises(openai.RateLimitError):
        await ask_on()
    answer = await tight.with_options(max_retries=2).embeddings.create(model="echo", input="a")
    assert len(answer.data) == 1
