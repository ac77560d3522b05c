"""The document, held against what is really answered."""

from typing import Any

import pytest
from fastapi.openapi.models import OpenAPI
from pydantic import BaseModel

from app.api import schemas
from app.errors import family
from tests.fakes.triton import FakeTriton
from tests.gateway.problems import CANARY
from tests.gateway.process import RunningGateway

OPERATIONS = {
    "classify": ("post", "/v1/classify"),
    "entities": ("post", "/v1/entities"),
    "embeddings": ("post", "/v1/embeddings"),
    "analyze": ("post", "/v1/analyze"),
    "list_models": ("get", "/v1/models"),
    "get_model": ("get", "/v1/models/{model}"),
}


async def document(gateway: RunningGateway) -> dict[str, Any]:
    return dict((await gateway.client.get("/openapi.json")).json())


async def test_the_operations_and_their_ids_are_those_that_clients_were_generated_from(staged: RunningGateway) -> None:
    paths = (await document(staged))["paths"]
    found = {of["operationId"]: (method, path) for path, methods in paths.items() for method, of in methods.items()}
    assert found == OPERATIONS


async def test_the_document_is_openapi_and_every_reference_leads_somewhere(staged: RunningGateway) -> None:
    content = await document(staged)
    OpenAPI.model_validate(content)
    schemas_known = content["components"]["schemas"]
    text = str(content)
    for reference in {piece.split("'")[0] for piece in text.split("#/components/schemas/")[1:]}:
        assert reference in schemas_known
    assert "HTTPValidationError" not in text
    assert "enum" not in schemas_known["ClassifyRequest"]["properties"]["model"]


async def test_every_documented_operation_exists_and_wants_a_key(staged: RunningGateway) -> None:
    content = await document(staged)
    assert content["security"] == [{"key": []}, {"header": []}]
    for method, path in OPERATIONS.values():
        request = path.replace("{model}", "words")
        assert (await staged.client.request(method, request)).status_code == 401
        answer = await staged.client.request(method, request, headers=staged.tenants.authorization("open"))
        assert answer.status_code in (200, 415)


async def test_every_documented_status_is_one_that_a_refusal_has(staged: RunningGateway) -> None:
    refusals = {str(kind.status) for kind in family()}
    for method, path in OPERATIONS.values():
        responses = (await document(staged))["paths"][path][method]["responses"]
        assert set(responses) - {"200"} <= refusals
        for status in set(responses) - {"200"}:
            assert list(responses[status]["content"]) == ["application/problem+json"]


async def test_the_examples_are_requests_that_their_schemas_take(staged: RunningGateway) -> None:
    paths = (await document(staged))["paths"]
    for name in ("classify", "entities", "embeddings", "analyze"):
        example = paths[f"/v1/{name}"]["post"]["requestBody"]["content"]["application/json"]["example"]
        getattr(schemas, f"{name.capitalize()}Request").model_validate(example)


ANSWERS: list[tuple[str, dict[str, Any], type[BaseModel]]] = [
    ("/v1/classify", {"model": "words", "inputs": [CANARY, "b"], "top_k": 2}, schemas.ClassifyResponse),
    ("/v1/entities", {"model": "spans", "inputs": [CANARY], "include_text": True}, schemas.EntitiesResponse),
    ("/v1/embeddings", {"model": "vectors", "input": CANARY}, schemas.EmbeddingsResponse),
    ("/v1/embeddings", {"model": "vectors", "input": CANARY, "encoding_format": "base64"}, schemas.EmbeddingsResponse),
    ("/v1/analyze", {"model": "heads", "inputs": [CANARY, "b"]}, schemas.AnalyzeResponse),
    ("/v1/analyze", {"model": "heads", "inputs": [CANARY], "features": ["mood"]}, schemas.AnalyzeResponse),
]


def members(value: Any) -> Any:
    """The names alone, so that an answer may have none that its schema lacks."""
    if isinstance(value, dict):
        return {name: members(of) for name, of in value.items()}
    return [members(of) for of in value] if isinstance(value, list) else None


@pytest.mark.parametrize(("path", "body", "shape"), ANSWERS, ids=lambda value: str(value)[:30])
async def test_an_answer_is_what_its_schema_says(
    staged: RunningGateway, stage: FakeTriton, path: str, body: dict[str, Any], shape: type[BaseModel]
) -> None:
    answer = await staged.post(path, body)
    assert answer.headers["content-type"] == "application/json"
    content = answer.json()
    parsed = shape.model_validate(content, strict=True)
    assert members(parsed.model_dump(exclude_unset=True)) == members(content)


async def test_models_are_what_their_schemas_say(staged: RunningGateway) -> None:
    listed = (await staged.get("/v1/models")).json()
    assert members(schemas.ModelList.model_validate(listed).model_dump(exclude_unset=True)) == members(listed)
    for card in listed["data"]:
        content = (await staged.get(f"/v1/models/{card['id']}")).json()
        assert members(schemas.ModelCard.model_validate(content).model_dump(exclude_unset=True)) == members(content)


@pytest.mark.parametrize(
    ("features", "heads", "embedded"),
    [
        ([], {"mood", "colour"}, True),
        (["mood"], {"mood"}, False),
        (["embedding"], set(), True),
        (["colour", "embedding"], {"colour"}, True),
    ],
)
async def test_only_the_heads_that_are_asked_for_are_computed_and_answered(
    staged: RunningGateway, stage: FakeTriton, features: list[str], heads: set[str], embedded: bool
) -> None:
    answer = (await staged.post("/v1/analyze", {"model": "heads", "inputs": ["a"], "features": features})).json()
    assert answer["results"][0]["heads"].keys() == heads
    assert ("embedding" in answer["results"][0]) is embedded
    assert answer["embedding_model"] == ("vectors" if embedded else None)
    asked = {output.name for output in stage.asked[0].request.outputs}
    assert asked == {*map(str.upper, heads), *(["EMBEDDING"] if embedded else []), "TOKENS", "TRUNCATED", "ERROR"}
