"""What the OpenAPI document says of the operations beyond their code."""

from typing import Any

from pydantic import BaseModel

from app.api.schemas import Problem

_EXAMPLES: dict[str, dict[str, Any]] = {
    "classify": {"model": "sentiment", "inputs": ["I love it", "It broke after a day."]},
    "entities": {"model": "pii", "inputs": ["My name is Jane Doe and I live in Springfield."], "include_text": True},
    "embeddings": {"model": "minilm-l6-v2", "input": ["This is an example sentence"]},
    "analyze": {"model": "analyze", "inputs": ["The new SUV handles snow well."], "features": ["sentiment", "topics"]},
}
PROBLEMS = {
    400: "The bytes are not a request.",
    401: "No key or token, or none that is known.",
    403: "The key does not allow this.",
    404: "There is no such model or path, or none that this tenant may see.",
    408: "The body did not arrive in time.",
    413: "The body is too large.",
    415: "The body is not JSON.",
    422: "The request is outside the rules; `errors` points to the items.",
    429: "The tenant's own limit is reached, or too many failed to authenticate; waiting `Retry-After` seconds helps.",
    500: "Conch failed.",
    502: "The model failed, or its answer can't be trusted.",
    503: "There is no capacity, or the model can't be served now.",
    504: "The time given for the request has passed.",
}


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    schema = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
    return {status: {"description": PROBLEMS[status], "content": schema} for status in statuses or PROBLEMS}


def documented(task: str, request: type[BaseModel], response: type[BaseModel]) -> dict[str, Any]:
    """The arguments of a route whose handler reads and writes bytes by itself."""
    body = {"schema": {"$ref": f"#/components/schemas/{request.__name__}"}, "example": _EXAMPLES[task]}
    return {
        "operation_id": task,
        "tags": ["tasks"],
        "responses": {200: {"model": response, "description": "The answers, in the order of the texts."}, **problems()},
        "openapi_extra": {"requestBody": {"required": True, "content": {"application/json": body}}},
    }


def complete(document: dict[str, Any], requests: tuple[type[BaseModel], ...]) -> dict[str, Any]:
    """Add the schemas that handlers read by themselves, and how to authenticate."""
    components = document.setdefault("components", {})
    schemas = components.setdefault("schemas", {})
    shapes: tuple[type[BaseModel], ...] = (*requests, Problem)
    for shape in shapes:
        schema = shape.model_json_schema(ref_template="#/components/schemas/{model}")
        schemas.update(schema.pop("$defs", {}))
        schemas[shape.__name__] = schema
    components["securitySchemes"] = {
        "key": {"type": "http", "scheme": "bearer", "description": "A tenant's key, `ck_…`, or a token (JWT)."},
        "header": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
    }
    for operation in (of for methods in document["paths"].values() for of in methods.values()):
        # FastAPI's own 422, for the parts of a path; ours take any string, and what is wrong with a body is a Problem.
        if "HTTPValidationError" in str(operation["responses"].get("422")):
            del operation["responses"]["422"]
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    document["security"] = [{"key": []}, {"header": []}]
    return document
