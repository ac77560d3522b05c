"""OpenAI's shape, to the letter that its own SDK relies on."""

from array import array
from base64 import b64decode
from collections.abc import AsyncIterator
from importlib import import_module
from types import ModuleType
from typing import Any

import pytest
import pytest_asyncio

from app.api.schemas import EmbeddingsResponse
from app.edge.problem import headers
from app.errors import InvalidInput, RateLimited
from tests.fakes.triton import FakeTriton, bent, put
from tests.gateway.problems import CANARY, assert_problem
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


@pytest.mark.parametrize(
    ("model", "dimensions", "vector"),
    [
        ("cut", 2, [0.6, 0.8]),
        ("cut", 4, [0.6, 0.8, 0, 0]),
        ("cut", 8, [3, 4, 0, 0, 12, 0, 0, 0]),
        ("cut-anywhere", 5, [3 / 13, 4 / 13, 0, 0, 12 / 13]),
        ("cut-anywhere", 1, [1]),
        ("cut", 3, "one of 2, 4, 8"),
        ("cut-anywhere", 9, "at most 8"),
        ("vectors", 2, "only 8"),
    ],
)
async def test_vectors_are_cut_to_length_1_where_the_route_allows_it(
    staged: RunningGateway, stage: FakeTriton, model: str, dimensions: int, vector: list[float] | str
) -> None:
    numbers = array("f", [3, 4, 0, 0, 12, 0, 0, 0])
    stage.behaviours["vectors"] = bent(stage, lambda answer: put(answer, "EMBEDDING", "FP32", (1, 8), numbers.tobytes()))
    answer = await staged.post("/v1/embeddings", {"model": model, "input": CANARY, "dimensions": dimensions})
    if isinstance(vector, str):
        errors = assert_problem(answer, 422, "invalid_input", "/dimensions").errors or []
        assert [flaw.detail.lower() for flaw in errors] == [f"{vector}."]
    else:
        assert answer.json()["data"][0]["embedding"] == pytest.approx(vector)


@pytest.mark.parametrize("tokens", [[1, 2], [[1, 2], [3]]])
async def test_token_ids_are_refused_with_the_way_out(staged: RunningGateway, tokens: list[Any]) -> None:
    problem = assert_problem(
        await staged.post("/v1/embeddings", {"model": "vectors", "input": tokens}), 400, "malformed_request", "/input"
    )
    assert "check_embedding_ctx_length=False" in problem.detail


@pytest.mark.parametrize("nested", [[[CANARY]], [[]], [True], [{"text": CANARY}], [1.5]])
async def test_what_is_neither_texts_nor_tokens_is_said_to_be_no_text(staged: RunningGateway, nested: list[Any]) -> None:
    answer = await staged.post("/v1/embeddings", {"model": "vectors", "input": nested})
    problem = assert_problem(answer, 422, "invalid_input", "/input/0")
    assert [flaw.detail for flaw in problem.errors or ()] == ["This must be a string."]


@pytest.mark.parametrize(
    ("model", "lengths"), [("vectors", (8, [], False)), ("cut", (8, [2, 4], False)), ("cut-anywhere", (8, [], True))]
)
async def test_a_model_s_card_says_how_its_vectors_may_be_cut(
    staged: RunningGateway, stage: FakeTriton, model: str, lengths: tuple[object, ...]
) -> None:
    card = (await staged.get(f"/v1/models/{model}")).json()
    assert (card["dimensions"], card["shorter_dimensions"], card["any_shorter_dimensions"]) == lengths
    assert card in (await staged.get("/v1/models")).json()["data"]


async def test_a_model_without_vectors_says_nothing_of_cutting_them(staged: RunningGateway, stage: FakeTriton) -> None:
    assert "shorter_dimensions" not in (await staged.get("/v1/models/words")).json()


@pytest.fixture(scope="module")
def openai() -> ModuleType:
    """A second's work, which every other worker would have too if it stood at the top."""
    return import_module("openai")


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def sdk(gateway: RunningGateway, openai: ModuleType) -> AsyncIterator[Any]:
    key = gateway.tenants.keys["open"]
    async with openai.AsyncOpenAI(api_key=key, base_url=f"{gateway.address.url}/v1", max_retries=0) as client:
        yield client


async def test_openai_s_sdk_reads_vectors(gateway: RunningGateway, sdk: Any) -> None:
    answer = await sdk.embeddings.create(model="echo", input=["a", CANARY], user="somebody")
    direct = (await gateway.post("/v1/embeddings", {"model": "echo", "input": ["a", CANARY]})).json()
    assert [entry.embedding for entry in answer.data] == [entry["embedding"] for entry in direct["data"]]
    assert answer.usage.total_tokens == len(CANARY) + 1
    floats = await sdk.embeddings.create(model="echo", input="a", encoding_format="float")
    assert floats.data[0].embedding == answer.data[0].embedding


async def test_openai_s_sdk_reads_one_vector_for_one_text(sdk: Any) -> None:
    answer = await sdk.embeddings.create(model="echo", input=CANARY, dimensions=32)
    assert [len(entry.embedding) for entry in answer.data] == [32]


async def test_openai_s_sdk_lists_the_models(sdk: Any) -> None:
    assert "echo" in [model.id async for model in sdk.models.list()]
    assert (await sdk.models.retrieve("echo")).owned_by == "conch"


ERRORS = [
    ({"model": "echo", "input": [[1, 2]]}, "open", "BadRequestError", "malformed_request"),
    ({"model": CANARY, "input": "a"}, "open", "NotFoundError", "unknown_model"),
    ({"model": "echo", "input": []}, "open", "UnprocessableEntityError", "invalid_input"),
    ({"model": "echo", "input": "a"}, "expired", "AuthenticationError", "unauthenticated"),
    ({"model": "echo", "input": "a"}, "scopeless", "PermissionDeniedError", "forbidden"),
]


@pytest.mark.parametrize(("arguments", "tenant", "error", "code"), ERRORS, ids=[row[3] for row in ERRORS])
async def test_an_error_becomes_openai_s_own(
    gateway: RunningGateway,
    sdk: Any,
    openai: ModuleType,
    arguments: dict[str, Any],
    tenant: str,
    error: str,
    code: str,
) -> None:
    with pytest.raises(getattr(openai, error)) as raised:
        await sdk.with_options(api_key=gateway.tenants.keys[tenant]).embeddings.create(**arguments)
    assert raised.value.code == code
    assert raised.value.request_id
    assert isinstance(raised.value.body, dict), "what the SDK takes from the member error"
    sentences = raised.value.body["message"].split(". ")
    assert len({sentence.rstrip(".") for sentence in sentences}) == len(sentences), "nothing is said twice"


async def test_a_rate_limit_becomes_openai_s_own_and_its_retry_succeeds(
    gateway: RunningGateway, sdk: Any, openai: ModuleType
) -> None:
    tight = sdk.with_options(api_key=gateway.tenants.keys["tight-for-openai"])

    async def ask_on() -> None:
        while True:
            await tight.embeddings.create(model="echo", input="a")

    with pytest.raises(openai.RateLimitError):
        await ask_on()
    answer = await tight.with_options(max_retries=2).embeddings.create(model="echo", input="a")
    assert len(answer.data) == 1


async def test_openai_s_sdk_does_not_try_again_where_that_is_wrong(
    gateway: RunningGateway, sdk: Any, openai: ModuleType
) -> None:
    frugal = sdk.with_options(api_key=gateway.tenants.keys["frugal-for-openai"], max_retries=2)
    await frugal.embeddings.create(model="echo", input="a" * 40)
    with pytest.raises(openai.RateLimitError) as raised:
        await frugal.embeddings.create(model="echo", input="a")
    assert raised.value.code == "quota_exhausted"
    assert raised.value.response.headers["x-should-retry"] == "false"
    assert raised.value.request.headers["x-stainless-retry-count"] == "0"


async def test_openai_s_sdk_tells_why_a_model_is_not_there(sdk: Any, openai: ModuleType) -> None:
    with pytest.raises(openai.NotFoundError) as raised:
        await sdk.models.retrieve("missing")
    assert (raised.value.code, raised.value.type) == ("unknown_model", "not_found_error")


@pytest.mark.parametrize(("retry_after", "told"), [(None, False), (1, False), (60, False), (61, True)])
def test_a_wait_that_clients_have_no_patience_for_is_not_worth_trying_again(retry_after: int | None, told: bool) -> None:
    assert (b"x-should-retry" in dict(headers(RateLimited("too many", retry_after=retry_after)))) is told
    assert dict(headers(InvalidInput("wrong")))[b"x-should-retry"] == b"false"
