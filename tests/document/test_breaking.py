"""Each way in which a document can break its clients, and the ways in which it can't."""

from copy import deepcopy
from typing import Any

import pytest

from tests.document.breaking import breaking

DOCUMENT: dict[str, Any] = {
    "paths": {
        "/v1/sort": {
            "post": {
                "operationId": "sort",
                "parameters": [{"in": "query", "name": "page", "schema": {"type": "integer"}}],
                "requestBody": {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/Ask"}}}},
                "responses": {
                    "200": {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/Answer"}}}},
                    "422": {"$ref": "#/components/responses/Bad"},
                },
            }
        }
    },
    "components": {
        "responses": {"Bad": {"content": {"application/problem+json": {"schema": {"type": "object"}}}}},
        "schemas": {
            "Ask": {
                "type": "object",
                "additionalProperties": False,
                "required": ["model"],
                "properties": {
                    "model": {"type": "string", "maxLength": 64},
                    "texts": {"type": "array", "items": {"type": "string"}, "minItems": 1},
                    "count": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
                    "unit": {"type": "string", "enum": ["byte", "character"]},
                },
            },
            "Answer": {
                "type": "object",
                "required": ["labels"],
                "properties": {
                    "labels": {"type": "array", "items": {"$ref": "#/components/schemas/Label"}},
                    "note": {"type": "string"},
                    "next": {"$ref": "#/components/schemas/Answer"},
                },
            },
            "Label": {"type": "object", "required": ["score"], "properties": {"score": {"type": "number"}}},
        },
        "securitySchemes": {"key": {}},
    },
}
OPERATION = "document['paths']['/v1/sort']['post']"
SCHEMAS = "document['components']['schemas']"
ASK, ANSWER, LABEL = (f"{SCHEMAS}['{name}']['properties']" for name in ("Ask", "Answer", "Label"))

BREAKING = [
    ("del document['paths']['/v1/sort']", "POST /v1/sort is gone"),
    (f"{OPERATION}['operationId'] = 'order'", "POST /v1/sort is named order, and was sort"),
    (f"{OPERATION}['parameters'] = []", "POST /v1/sort: the parameter page is gone"),
    (f"{OPERATION}['parameters'][0]['required'] = True", "POST /v1/sort: the parameter page is required"),
    (f"{OPERATION}['parameters'][0]['schema']['maximum'] = 9", "POST /v1/sort: page: maximum is 9"),
    (f"{OPERATION}['requestBody']['required'] = True", "POST /v1/sort: a body is required"),
    (f"{OPERATION}['requestBody']['content'] = {{}}", "POST /v1/sort: request: application/json is gone"),
    (f"del {OPERATION}['responses']['200']", "POST /v1/sort: the answer 200 is gone"),
    ("document['components']['responses']['Bad']['content'] = {}", "POST /v1/sort: 422: application/problem+json is gone"),
    ("del document['components']['securitySchemes']['key']", "the security scheme key is gone"),
    (f"del {ASK}['texts']", "POST /v1/sort: request/texts is gone"),
    (f"{SCHEMAS}['Ask']['required'].append('unit')", "POST /v1/sort: request/unit is required"),
    (f"{ASK}['model']['maxLength'] = 32", "POST /v1/sort: request/model: maxLength is 32"),
    (f"{ASK}['model']['minLength'] = 1", "POST /v1/sort: request/model: minLength is 1"),
    (f"{ASK}['model']['pattern'] = 'a'", "POST /v1/sort: request/model: the pattern is a"),
    (f"{ASK}['model']['enum'] = ['a']", "POST /v1/sort: request/model: it must be one of 1 values"),
    (f"{ASK}['model']['type'] = 'integer'", "POST /v1/sort: request/model: the type is integer, and was string"),
    (f"{ASK}['texts']['items'] = {{'type': 'integer'}}", "POST /v1/sort: request/texts/*: the type is integer, and was string"),
    (f"{ASK}['unit']['enum'].remove('byte')", "POST /v1/sort: request/unit: byte is not taken any more"),
    (f"{ASK}['count'] = {{'type': 'integer'}}", "POST /v1/sort: request/count: null is not taken any more"),
    (f"del {ANSWER}['note']", "POST /v1/sort: 200/note is gone"),
    (f"{SCHEMAS}['Answer']['required'] = []", "POST /v1/sort: 200/labels may be missing now"),
    (f"{ANSWER}['note']['type'] = 'integer'", "POST /v1/sort: 200/note: the type is integer, and was string"),
    (
        f"{ANSWER}['note'] = {{'anyOf': [{{'type': 'string'}}, {{'type': 'null'}}]}}",
        "POST /v1/sort: 200/note: it may be null now",
    ),
    (f"{LABEL}['score']['type'] = 'string'", "POST /v1/sort: 200/labels/*/score: the type is string, and was number"),
]
HARMLESS = [
    "document['paths']['/v1/more'] = document['paths']['/v1/sort']",
    f"{OPERATION}['parameters'].append({{'in': 'query', 'name': 'size', 'schema': {{}}}})",
    f"{OPERATION}['responses']['503'] = {OPERATION}['responses']['422']",
    f"del {OPERATION}['responses']['422']",
    f"{ASK}['model']['maxLength'] = 128",
    f"del {ASK}['texts']['minItems']",
    f"{ASK}['unit']['enum'].append('word')",
    f"{ASK}['texts'] = {{'anyOf': [{ASK}['texts'], {{'type': 'string'}}]}}",
    f"{ASK}['more'] = {{'type': 'string'}}",
    f"{SCHEMAS}['Ask']['required'] = []",
    f"{ANSWER}['more'] = {{'type': 'string'}}",
    f"{SCHEMAS}['Answer']['required'].append('note')",
    f"{LABEL}['score']['type'] = 'integer'",
    f"{SCHEMAS}['Ask']['description'] = 'other words'",
]


def changed(change: str) -> dict[str, Any]:
    document = deepcopy(DOCUMENT)
    exec(change, {"document": document})
    return document


@pytest.mark.parametrize(("change", "sentence"), BREAKING, ids=[sentence for _, sentence in BREAKING])
def test_what_breaks_a_client_is_said(change: str, sentence: str) -> None:
    assert breaking(DOCUMENT, changed(change)) == [sentence]


@pytest.mark.parametrize("change", HARMLESS)
def test_what_breaks_nobody_is_let_pass(change: str) -> None:
    assert changed(change) != DOCUMENT
    assert breaking(DOCUMENT, changed(change)) == []


def test_a_document_does_not_break_itself() -> None:
    assert breaking(DOCUMENT, DOCUMENT) == []
