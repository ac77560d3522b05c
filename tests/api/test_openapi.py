"""The document, held against what is really answered."""

import asyncio
import os
import re
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator
from openapi_spec_validator import validate
from pydantic import BaseModel

from app.api import schemas
from app.api.rerank import RerankResponse
from app.errors import family
from app.main import document_of
from app.routing.route import MOST_CHARACTERS, MOST_INPUTS
from tests.fakes.triton import FakeTriton
from tests.gateway.problems import CANARY
from tests.gateway.process import ROOT, RunningGateway

PUBLIC_MODELS = ROOT / "config" / "routes.yaml"


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return document_of()


def operations(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield method, path, operation


def validator(document: dict[str, Any], reference: str) -> Draft202012Validator:
    return Draft202012Validator({"$ref": reference, "components": document["components"]})


@pytest.mark.parametrize("path", ["/openapi.json", "/openapi-3.0.json"])
async def test_what_is_served_is_openapi_and_byte_for_byte_what_is_committed(staged: RunningGateway, path: str) -> None:
    answer = await staged.client.get(path)
    assert answer.content == (ROOT / "docs" / path[1:]).read_bytes()
    validate(answer.json())
    assert "HTTPValidationError" not in answer.text


async def test_the_document_is_the_same_bytes_whatever_the_order_of_sets() -> None:
    builds = []
    for seed in ("1", "2"):
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "app.cli", "openapi"), cwd=ROOT, env={**os.environ, "PYTHONHASHSEED": seed}, stdout=-1
        )
        builds.append((await process.communicate())[0])
    assert builds[0] == builds[1] == (ROOT / "docs" / "openapi.json").read_bytes()


def test_operations_have_stable_names_a_known_tag_and_words_for_people(document: dict[str, Any]) -> None:
    names = [operation["operationId"] for _, _, operation in operations(document)]
    assert len(names) == len(set(names))
    tags = {tag["name"] for tag in document["tags"] if tag["description"]}
    for _, path, operation in operations(document):
        assert re.fullmatch(r"[a-z]+(_[a-z]+)*", operation["operationId"])
        assert set(operation["tags"]) <= tags
        assert operation["summary"]
        assert operation["description"]
        assert {p["name"] for p in operation.get("parameters", ()) if p["in"] == "path"} == set(re.findall(r"{(\w+)}", path))


async def test_every_documented_operation_exists_and_wants_a_key(staged: RunningGateway, document: dict[str, Any]) -> None:
    assert document["security"] == [{"bearer": []}, {"key": []}]
    for method, path, _ in operations(document):
        request = path.replace("{model}", "words").replace("{version}", "1")
        assert (await staged.client.request(method, request)).status_code == 401, path
        answer = await staged.client.request(method, request, headers=staged.tenants.authorization("open"))
        assert answer.status_code in (200, 400, 404, 415, 422), path
        assert "not_found" not in answer.text


def test_every_documented_status_is_one_that_a_refusal_has(document: dict[str, Any]) -> None:
    refusals = {str(kind.status) for kind in family()}
    for _, _, operation in operations(document):
        for status in set(operation["responses"]) - {"200"}:
            assert status in refusals
            shared = document["components"]["responses"][operation["responses"][status]["$ref"].rpartition("/")[2]]
            assert list(shared["content"]) == ["application/problem+json"]
            assert ("Retry-After" in shared["headers"]) is (status in ("429", "503"))


def test_every_kind_of_refusal_is_shown_by_an_example_that_its_schema_takes(document: dict[str, Any]) -> None:
    shown = set()
    for response in document["components"]["responses"].values():
        content = response["content"]["application/problem+json"]
        for code, example in content["examples"].items():
            validator(document, content["schema"]["$ref"]).validate(example["value"])
            shown.add(code)
    assert shown == {kind.code for kind in family()} - {"method_not_allowed", "client_closed"}


def test_the_examples_are_what_their_schemas_take(document: dict[str, Any]) -> None:
    for method, path, operation in operations(document):
        body = operation.get("requestBody", {}).get("content", {}).get("application/json")
        if body is None:
            assert method == "get" or "bulk" in path
            continue
        examples = [body["example"]] if "example" in body else [example["value"] for example in body["examples"].values()]
        assert examples
        for example in examples:
            validator(document, body["schema"]["$ref"]).validate(example)
        answer = operation["responses"]["200"]["content"]["application/json"]
        validator(document, answer["schema"]["$ref"]).validate(answer["example"])


def test_the_models_of_this_repository_are_examples_of_an_open_string(document: dict[str, Any]) -> None:
    routes = yaml.safe_load(PUBLIC_MODELS.read_text("utf-8"))["routes"]
    for task in {route["task"] for route in routes.values()} - {"infer"}:
        model = document["components"]["schemas"][f"{task.capitalize()}Request"]["properties"]["model"]
        assert set(model["examples"]) == {name for name, route in routes.items() if route["task"] == task}
        assert "enum" not in model


def test_limits_are_told(document: dict[str, Any]) -> None:
    inputs = document["components"]["schemas"]["ClassifyRequest"]["properties"]["inputs"]
    assert (inputs["minItems"], inputs["maxItems"], inputs["items"]["maxLength"]) == (1, MOST_INPUTS, MOST_CHARACTERS)


RICH = {"text": CANARY, "id": 7}
ANSWERS: list[tuple[str, dict[str, Any], type[BaseModel]]] = [
    ("/v1/classify", {"model": "words", "inputs": [CANARY, "b"], "top_k": 2}, schemas.ClassifyResponse),
    ("/v1/entities", {"model": "spans", "inputs": [CANARY], "include_text": True}, schemas.EntitiesResponse),
    ("/v1/embeddings", {"model": "vectors", "input": CANARY}, schemas.EmbeddingsResponse),
    ("/v1/embeddings", {"model": "vectors", "input": CANARY, "encoding_format": "base64"}, schemas.EmbeddingsResponse),
    ("/v1/rerank", {"model": "pairs", "query": CANARY, "documents": ["a", "b"], "top_n": 1}, RerankResponse),
    ("/v1/rerank", {"model": "pairs", "query": CANARY, "documents": [RICH], "return_documents": True}, RerankResponse),
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
