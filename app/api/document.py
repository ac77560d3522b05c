"""The OpenAPI document, whole. It depends on the code alone, so that it is the same bytes wherever and whenever it is built."""

import json
from collections.abc import Callable
from copy import deepcopy
from typing import Any

from pydantic import BaseModel

from app.api.example_answers import ANSWERS
from app.api.examples import DETAILS, FLAW, MODELS
from app.api.inference_schemas import InferenceProblem
from app.api.schemas import OpenAIProblem, Problem
from app.errors import ClientClosed, Flaw, InvalidInput, MethodNotAllowed, Refusal, family

Json = dict[str, Any]
Written = Callable[[Refusal, str, str], bytes]
"""How the edge writes a refusal: with the request's id, for a path."""

TAGS = {
    "tasks": "One call for each task: plain JSON in, plain JSON out, in the order of the texts.",
    "bulk": "Many texts in one call: a line in, a line out.",
    "models": "What may be called, with what labels and within which limits.",
    "inference": "The Open Inference Protocol (KServe v2), for clients that speak tensors.",
}
_ABOUT = """\
The REST front door of NVIDIA Triton Inference Server for text models.

**Authenticate** with a tenant's key, as `Authorization: Bearer ck_…` or as `X-API-Key: ck_…`; a token (JWT) of a configured
issuer goes where a key does.

**Errors** all have one shape, [problem details](https://www.rfc-editor.org/rfc/rfc9457): decide on `code`, and look up `type`
for what to do. After 429 and 503, waiting `Retry-After` seconds helps. Quote `request_id` when you ask for help; send
`X-Request-Id` to choose it.

**Limits.** `RateLimit-Policy` and `RateLimit` tell what a tenant may and what is left of it. The caps on one request are each
model's own: `GET /v1/models` lists them.

**Deadlines.** `timeout_ms` in the body, or the header `X-Request-Timeout-Ms`, says after how many milliseconds an answer is
worthless.
"""
_HEADERS = {
    "X-Request-Id": "Names this request in the log: yours, if you sent one, or a new one.",
    "Server-Timing": "Milliseconds for authentication, admission, Triton and all together.",
    "RateLimit-Policy": "The tenant's limits: `q` is the quota, `w` its window in seconds.",
    "RateLimit": "What is left: `r` of each quota, and `t` seconds until it is full again.",
    "Conch-Limiter": "`degraded` while limits are decided without Redis, by this replica's share alone.",
    "Retry-After": "Whole seconds to wait.",
    "X-Should-Retry": "`false` where trying again is of no use, or the wait is longer than a minute; OpenAI's SDKs heed it.",
    "WWW-Authenticate": "How to authenticate (RFC 6750).",
}
_SCHEMES = {
    "bearer": {"type": "http", "scheme": "bearer", "description": "A tenant's key, `ck_…`, or a token (JWT)."},
    "key": {"type": "apiKey", "in": "header", "name": "X-API-Key", "description": "The same, for clients without bearers."},
}
_ALWAYS = ("X-Request-Id", "Server-Timing")
_AFTER_ADMISSION = ("RateLimit-Policy", "RateLimit", "Conch-Limiter")
_PROBLEM = "application/problem+json"
_REQUEST_ID = "2f6b0c9e1d3a4b5c6d7e8f90"


def complete(generated: Json, requests: tuple[type[BaseModel], ...], written: Written, root_path: str = "") -> Json:
    """FastAPI's document, with all that its handlers do by themselves. `root_path` is what an ingress puts before each path."""
    document = deepcopy(generated)
    document["info"] = {
        **document["info"],
        "description": _ABOUT,
        "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
    }
    if root_path:
        document["servers"] = [{"url": root_path}]
    responses: Json = {}
    for path, methods in document["paths"].items():
        for operation in methods.values():
            _finish(path, operation, responses, written)
    document["components"] = {
        "schemas": _schemas(document["components"]["schemas"], (*requests, Problem, OpenAIProblem, InferenceProblem)),
        "headers": {name: {"description": text, "schema": {"type": _kind(name)}} for name, text in _HEADERS.items()},
        "responses": responses,
        "securitySchemes": _SCHEMES,
    }
    document["security"] = [{"bearer": []}, {"key": []}]
    used = {tag for methods in document["paths"].values() for operation in methods.values() for tag in operation["tags"]}
    document["tags"] = [
        {"name": name, "x-displayName": name.capitalize(), "description": text} for name, text in TAGS.items() if name in used
    ]
    return document


def serialized(document: Json) -> bytes:
    return json.dumps(document, ensure_ascii=False, indent=1).encode() + b"\n"


def _schemas(generated: Json, shapes: tuple[type[BaseModel], ...]) -> Json:
    """FastAPI's, and those of what handlers read and refuse by themselves."""
    schemas = {name: schema for name, schema in generated.items() if name not in ("HTTPValidationError", "ValidationError")}
    for shape in shapes:
        schema = shape.model_json_schema(ref_template="#/components/schemas/{model}")
        schemas |= schema.pop("$defs", {})
        schemas[shape.__name__] = schema
    for name, schema in schemas.items():
        for member in schema.get("properties", {}).values():
            _tidy(member)
        if name in MODELS:
            schema["properties"]["model"]["examples"] = list(MODELS[name])
    return dict(sorted(schemas.items()))


def _tidy(member: Json) -> None:
    """What pydantic says beyond need: a title made of the name, and that what may be left out is then nothing."""
    member.pop("title", None)
    if member.get("default", 0) is None or isinstance(member.get("default"), dict):
        del member["default"]


def _finish(path: str, operation: Json, shared: Json, written: Written) -> None:
    """Its refusals become references to those that all operations share; its answers say their headers."""
    responses = operation["responses"]
    # FastAPI's own 422, for the parts of a path; ours take any string, and what is wrong with a body is a Problem.
    if "HTTPValidationError" in str(responses.get("422")):
        del responses["422"]
    for parameter in operation.get("parameters", ()):
        _tidy(parameter["schema"])
        parameter["schema"] = _without_null(parameter["schema"])
    is_limited = "504" in responses
    for status, response in responses.items():
        content = response.get("content", {})
        if _PROBLEM in content:
            shape = content[_PROBLEM]["schema"]["$ref"].rpartition("/")[2]
            if f"{shape}{status}" not in shared:
                shared[f"{shape}{status}"] = _refusal(
                    int(status), response, lambda refusal: written(refusal, _REQUEST_ID, path)
                )
            responses[status] = {"$ref": f"#/components/responses/{shape}{status}"}
        elif int(status) < 400:
            if operation["operationId"] in ANSWERS:  # here, since FastAPI leaves each null out of an example
                content["application/json"]["example"] = ANSWERS[operation["operationId"]]
            response["headers"] = response.get("headers", {}) | _references(
                _ALWAYS + _AFTER_ADMISSION if is_limited else _ALWAYS
            )


def _refusal(status: int, response: Json, body: Callable[[Refusal], bytes]) -> Json:
    names = (*_ALWAYS, "X-Should-Retry") + (_AFTER_ADMISSION if status in (422, 429) or status >= 500 else ())
    names += {401: ("WWW-Authenticate",), 429: ("Retry-After",), 503: ("Retry-After",)}.get(status, ())
    kinds = [kind for kind in family() if kind.status == status and kind not in (MethodNotAllowed, ClientClosed)]
    examples = {kind.code: {"summary": kind.title, "value": json.loads(body(_example(kind)))} for kind in kinds}
    content = {_PROBLEM: {**response["content"][_PROBLEM], "examples": examples}}
    return {"description": response["description"], "headers": _references(names), "content": content}


def _example(kind: type[Refusal]) -> Refusal:
    return kind(DETAILS[kind.code], flaws=(Flaw(**FLAW),) if kind is InvalidInput else ())


def _references(names: tuple[str, ...]) -> Json:
    return {name: {"$ref": f"#/components/headers/{name}"} for name in names}


def _kind(header: str) -> str:
    return "integer" if header == "Retry-After" else "string"


def _without_null(schema: Json) -> Json:
    """A query has no word for it."""
    others = [choice for choice in schema.get("anyOf", ()) if choice != {"type": "null"}]
    return others[0] if len(others) == 1 else schema
