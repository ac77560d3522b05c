"""What each operation says of itself to FastAPI; `document` makes the OpenAPI document of it."""

from typing import Any

from pydantic import BaseModel

from app.api.examples import REQUESTS
from app.api.schemas import Problem

PROBLEMS = {
    400: "The bytes are not a request.",
    401: "No key or token, or none that is known.",
    403: "The key does not allow this.",
    404: "There is no such model or path, or none that this tenant may see.",
    408: "The request did not arrive in time.",
    413: "The body is too large.",
    414: "The request target is too long.",
    415: "The body's media type or encoding is not taken.",
    422: "The request is outside the rules; `errors` points to the items.",
    429: "The tenant's own limit is reached, or too many failed to authenticate; waiting `Retry-After` seconds helps.",
    431: "The head of the request is too large.",
    500: "Conch failed.",
    502: "The model failed, or its answer can't be trusted.",
    503: "There is no capacity, or the model can't be served now.",
    504: "The time given for the request has passed.",
}
ANYWHERE = (400, 401, 403, 408, 414, 429, 431, 500, 503)
"""What every operation may answer, whatever it does."""
BEFORE_THE_PATH = (431,)
"""What is refused when nobody knows yet whose clients ask."""


def problems(*statuses: int, shape: type[BaseModel] = Problem) -> dict[int | str, dict[str, Any]]:
    """The refusals of an operation: those named, and those that no operation is spared. All of them where none is named."""
    chosen = sorted({*statuses, *ANYWHERE}) if statuses else PROBLEMS
    return {status: _problem(status, Problem if status in BEFORE_THE_PATH else shape) for status in chosen}


def _problem(status: int, shape: type[BaseModel]) -> dict[str, Any]:
    schema = {"$ref": f"#/components/schemas/{shape.__name__}"}
    return {"description": PROBLEMS[status], "content": {"application/problem+json": {"schema": schema}}}


def documented(
    task: str,
    request: type[BaseModel],
    response: type[BaseModel],
    summary: str,
    *,
    answer: str = "The answers, in the order of the texts.",
    shape: type[BaseModel] = Problem,
    operation_id: str = "",
) -> dict[str, Any]:
    """The arguments of a route whose handler reads and writes bytes by itself; `shape` is that of its problems."""
    examples = {name: {"summary": name, "value": value} for name, value in REQUESTS[task].items()}
    body = {"schema": {"$ref": f"#/components/schemas/{request.__name__}"}, "examples": examples}
    return {
        "operation_id": operation_id or task,
        "summary": summary,
        "tags": ["tasks"],
        "responses": {200: {"model": response, "description": answer}, **problems(shape=shape)},
        "openapi_extra": {"requestBody": {"required": True, "content": {"application/json": body}}},
    }
