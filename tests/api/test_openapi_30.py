"""What 3.1 says, in the words of 3.0."""

from copy import deepcopy
from typing import Any

import pytest
from openapi_spec_validator import validate

from app.api.openapi_30 import in_3_0

TRANSLATED: list[tuple[Any, dict[str, Any]]] = [
    ({"type": ["string", "null"]}, {"type": "string", "nullable": True}),
    ({"type": ["string", "integer"]}, {"anyOf": [{"type": "string"}, {"type": "integer"}]}),
    (
        {"anyOf": [{"type": "integer", "minimum": 1}, {"type": "null"}], "default": None},
        {"type": "integer", "minimum": 1, "nullable": True, "default": None},
    ),
    ({"anyOf": [{"$ref": "#/a"}, {"type": "null"}]}, {"allOf": [{"$ref": "#/a"}], "nullable": True}),
    (
        {"oneOf": [{"type": "string"}, {"type": "integer"}, {"type": "null"}]},
        {"oneOf": [{"type": "string"}, {"type": "integer"}], "nullable": True},
    ),
    (
        {"anyOf": [{"type": "string", "enum": ["a"]}, {"type": "null"}]},
        {"type": "string", "enum": ["a", None], "nullable": True},
    ),
    ({"const": "list"}, {"type": "string", "enum": ["list"]}),
    ({"const": True}, {"type": "boolean", "enum": [True]}),
    ({"type": "number", "exclusiveMinimum": 0}, {"type": "number", "minimum": 0, "exclusiveMinimum": True}),
    ({"type": "number", "exclusiveMaximum": 9}, {"type": "number", "maximum": 9, "exclusiveMaximum": True}),
    ({"type": "string", "examples": ["a", "b"]}, {"type": "string", "example": "a"}),
    ({"type": "string", "contentEncoding": "base64"}, {"type": "string", "format": "byte"}),
    ({"$ref": "#/a", "description": "b"}, {"allOf": [{"$ref": "#/a"}], "description": "b"}),
    ({"$ref": "#/a"}, {"$ref": "#/a"}),
    ({"type": "object", "propertyNames": {"pattern": "a"}}, {"type": "object"}),
    ({"type": "array", "items": {"const": 1}}, {"type": "array", "items": {"type": "integer", "enum": [1]}}),
    (
        {"type": "object", "properties": {"examples": {"const": 1}}},
        {"type": "object", "properties": {"examples": {"type": "integer", "enum": [1]}}},
    ),
    (
        {"type": "object", "additionalProperties": {"type": ["string", "null"]}},
        {"type": "object", "additionalProperties": {"type": "string", "nullable": True}},
    ),
    ({"type": "object", "additionalProperties": False}, {"type": "object", "additionalProperties": False}),
    ({"anyOf": [{"type": "null"}]}, {"nullable": True}),
    (True, {}),
]


def document(schema: Any) -> dict[str, Any]:
    return {
        "openapi": "3.1.0",
        "jsonSchemaDialect": "https://spec.openapis.org/oas/3.1/dialect/base",
        "info": {"title": "t", "version": "1", "summary": "s", "license": {"name": "n", "identifier": "i"}},
        "paths": {
            "/": {
                "get": {
                    "parameters": [{"name": "a", "in": "query", "schema": schema, "example": {"const": 1}}],
                    "responses": {"200": {"description": "d", "content": {"application/json": {"schema": schema}}}},
                }
            }
        },
        "components": {"schemas": {"a": schema}},
    }


@pytest.mark.parametrize(("schema", "translated"), TRANSLATED, ids=str)
def test_a_schema_says_the_same_in_3_0_wherever_it_stands(schema: Any, translated: dict[str, Any]) -> None:
    given = document(schema)
    before = deepcopy(given)
    made = in_3_0(given)
    assert given == before
    operation = made["paths"]["/"]["get"]
    assert operation["parameters"][0]["schema"] == translated
    assert operation["parameters"][0]["example"] == {"const": 1}
    assert operation["responses"]["200"]["content"]["application/json"]["schema"] == translated
    assert made["components"]["schemas"]["a"] == translated


def test_what_3_0_does_not_know_is_left_out() -> None:
    made = in_3_0(document({"type": "string"}))
    assert (made["openapi"], made["info"]["license"]) == ("3.0.3", {"name": "n"})
    assert not {"jsonSchemaDialect", "summary"} & {*made, *made["info"]}
    validate(made)
