"""OpenAPI 3.0.3 of a 3.1 document, for generators that are older. What 3.0 has no word for is left out: it then allows more."""

from typing import Any

Json = dict[str, Any]

_KEPT = frozenset(
    (
        *("title", "multipleOf", "maximum", "exclusiveMaximum", "minimum", "exclusiveMinimum", "maxLength", "minLength"),
        *("pattern", "maxItems", "minItems", "uniqueItems", "maxProperties", "minProperties", "required", "enum", "type"),
        *("allOf", "oneOf", "anyOf", "not", "items", "properties", "additionalProperties", "description", "format"),
        *("default", "nullable", "discriminator", "readOnly", "writeOnly", "example", "externalDocs", "deprecated", "$ref"),
    )
)
_NULL = {"type": "null"}
_TYPES = {str: "string", bool: "boolean", int: "integer", float: "number"}


def in_3_0(document: Json) -> Json:
    """The same operations, answers and rules; `document` stays as it is."""
    rest = {name: part for name, part in document.items() if name not in ("jsonSchemaDialect", "webhooks")}
    whole: Json = _walked({**rest, "openapi": "3.0.3"})
    whole["info"].pop("summary", None)
    if license_ := whole["info"].get("license"):
        whole["info"]["license"] = {name: text for name, text in license_.items() if name != "identifier"}
    return whole


def _walked(part: Any) -> Any:
    """Whatever is not a schema, down to the schemas that it holds."""
    if isinstance(part, list):
        return [_walked(item) for item in part]
    if not isinstance(part, dict):
        return part
    return {name: _member(name, of) for name, of in part.items()}


def _member(name: str, of: Any) -> Any:
    if name in ("example", "examples"):
        return of
    if name == "schema":
        return _schema(of)
    if name == "schemas":
        return {title: _schema(schema) for title, schema in of.items()}
    return _walked(of)


def _schema(schema: Any) -> Any:
    if not isinstance(schema, dict):
        return {} if schema is True else {"not": {}}
    made = _renamed({name: _keyword(name, of) for name, of in schema.items()})
    made = {name: of for name, of in made.items() if name in _KEPT}
    if "$ref" in made and len(made) > 1:  # 3.0 reads nothing beside a reference
        made = {"allOf": [{"$ref": made.pop("$ref")}], **made}
    return made


def _keyword(name: str, of: Any) -> Any:
    match name:
        case "properties":
            return {member: _schema(schema) for member, schema in of.items()}
        case "items" | "not":
            return _schema(of)
        case "additionalProperties":
            return of if isinstance(of, bool) else _schema(of)
        case "allOf" | "oneOf" | "anyOf":
            return [schema if schema == _NULL else _schema(schema) for schema in of]
    return of


def _renamed(schema: Json) -> Json:
    """What 3.0 says in other words."""
    for kind in ("anyOf", "oneOf"):
        if _NULL in schema.get(kind, ()):
            schema = _without_null(schema, kind)
    if isinstance(kinds := schema.get("type"), list):
        schema = _without_type_list(schema, kinds)
    if "const" in schema:
        schema = {"type": _TYPES[type(schema["const"])], **schema, "enum": [schema["const"]]}
    if schema.get("examples"):
        schema["example"] = schema["examples"][0]
    for bound, limit in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
        if isinstance(schema.get(bound), int | float) and not isinstance(schema[bound], bool):
            schema = {**schema, limit: schema[bound], bound: True}
    encoding = {"base64": "byte"}.get(schema.get("contentEncoding", ""))
    return {**schema, "format": encoding} if encoding else schema


def _without_null(schema: Json, kind: str) -> Json:
    others = [other for other in schema[kind] if other != _NULL]
    rest = {name: of for name, of in schema.items() if name != kind}
    if len(others) > 1:
        return {kind: others, **rest, "nullable": True}
    if not others:
        return {**rest, "nullable": True}
    only = {"allOf": others} if "$ref" in others[0] else others[0]
    if "enum" in only:
        only = {**only, "enum": [*only["enum"], None]}
    return {**only, **rest, "nullable": True}


def _without_type_list(schema: Json, kinds: list[str]) -> Json:
    others = [kind for kind in kinds if kind != "null"]
    rest = {name: of for name, of in schema.items() if name != "type"}
    made = {"type": others[0], **rest} if len(others) == 1 else {"anyOf": [{"type": kind} for kind in others], **rest}
    return {**made, "nullable": True} if "null" in kinds else made
