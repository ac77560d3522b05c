"""What changed between two OpenAPI documents such that a client of the old one may fail against the new one."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]

_LOWERED = ("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties")
_RAISED = ("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties")
_FAR = float("inf")


def breaking(old: Json, new: Json) -> list[str]:
    """A sentence for each; none where every old client works on."""
    return list(dict.fromkeys(_operations(Reader(old), Reader(new))))


class Reader:
    """A document, and where its references lead."""

    def __init__(self, document: Json) -> None:
        self.document = document

    def read(self, part: Json) -> Json:
        while "$ref" in part:
            found: Any = self.document
            for step in part["$ref"].removeprefix("#/").split("/"):
                found = found[step.replace("~1", "/").replace("~0", "~")]
            part = found
        return part


def _operations(old: Reader, new: Reader) -> Iterator[str]:
    for path, methods in old.document["paths"].items():
        for method, before in methods.items():
            name = f"{method.upper()} {path}"
            after = new.document["paths"].get(path, {}).get(method)
            if after is None:
                yield f"{name} is gone"
                continue
            if before["operationId"] != after["operationId"]:
                yield f"{name} is named {after['operationId']}, and was {before['operationId']}"
            yield from (f"{name}: {fault}" for fault in _operation(old, new, before, after))
    for scheme in old.document["components"].get("securitySchemes", {}):
        if scheme not in new.document["components"].get("securitySchemes", {}):
            yield f"the security scheme {scheme} is gone"


def _operation(old: Reader, new: Reader, before: Json, after: Json) -> Iterator[str]:
    asked = Way(old, new)
    known = {(p["in"], p["name"]): p for p in map(old.read, before.get("parameters", ()))}
    now = {(p["in"], p["name"]): p for p in map(new.read, after.get("parameters", ()))}
    yield from (f"the parameter {name} is gone" for at, name in known if (at, name) not in now)
    for key, parameter in now.items():
        if parameter.get("required") and not known.get(key, {}).get("required"):
            yield f"the parameter {key[1]} is required"
        if key in known:
            yield from asked.narrowed(known[key].get("schema", {}), parameter.get("schema", {}), key[1])
    body, since = old.read(before.get("requestBody", {})), new.read(after.get("requestBody", {}))
    if since.get("required") and not body.get("required"):
        yield "a body is required"
    for media, schema in _contents(body):
        if media not in since.get("content", {}):
            yield f"request: {media} is gone"
        else:
            yield from asked.narrowed(schema, since["content"][media].get("schema", {}), "request")
    yield from _answers(old, new, before["responses"], after["responses"])


def _answers(old: Reader, new: Reader, before: Json, after: Json) -> Iterator[str]:
    answered = Way(new, old, is_answer=True)
    for status, response in before.items():
        if status not in after:
            if status.startswith("2"):
                yield f"the answer {status} is gone"
            continue
        contents = new.read(after[status]).get("content", {})
        for media, schema in _contents(old.read(response)):
            if media not in contents:
                yield f"{status}: {media} is gone"
            else:
                yield from answered.narrowed(contents[media].get("schema", {}), schema, status)


def _contents(body: Json) -> Iterator[tuple[str, Json]]:
    for media, content in body.get("content", {}).items():
        yield media, content.get("schema", {})


@dataclass(frozen=True, slots=True)
class Way:
    """From who sends to who receives: what the one may send, the other must take. In a request, the old client sends to the new
    server; in an answer, the new server sends to the old client.
    """

    sender: Reader
    receiver: Reader
    is_answer: bool = False

    def narrowed(self, sent: Json, taken: Json, at: str, seen: frozenset[Any] = frozenset()) -> Iterator[str]:
        """How `taken` refuses what `sent` allows."""
        pair = (sent.get("$ref"), taken.get("$ref"))
        if all(pair) and pair in seen:
            return
        seen |= {pair}
        choices, others = _alternatives(self.sender, sent), _alternatives(self.receiver, taken)
        if len(choices) == len(others) == 1:
            yield from self._one(choices[0], others[0], at, seen)
            return
        for choice in choices:
            if all(any(True for _ in self._one(choice, other, at, seen)) for other in others):
                word = choice.get("type", "any")
                yield f"{at}: it may be {word} now" if self.is_answer else f"{at}: {word} is not taken any more"

    def _one(self, sent: Json, taken: Json, at: str, seen: frozenset[Any]) -> Iterator[str]:
        kinds = sent.get("type"), taken.get("type")
        if kinds[1] is not None and kinds[0] != kinds[1] and kinds != ("integer", "number"):
            was, now = reversed(kinds) if self.is_answer else kinds
            yield f"{at}: the type is {now or 'any'}, and was {was or 'any'}"
            return
        if not self.is_answer:
            yield from (f"{at}: {name} is {taken[name]}" for name in _LOWERED if taken.get(name, _FAR) < sent.get(name, _FAR))
            yield from (f"{at}: {name} is {taken[name]}" for name in _RAISED if taken.get(name, -_FAR) > sent.get(name, -_FAR))
            if "pattern" in taken and taken["pattern"] != sent.get("pattern"):
                yield f"{at}: the pattern is {taken['pattern']}"
        yield from self._values(sent, taken, at)
        yield from self._members(sent, taken, at, seen)
        if "items" in taken:
            yield from self.narrowed(sent.get("items", {}), taken["items"], f"{at}/*", seen)

    def _values(self, sent: Json, taken: Json, at: str) -> Iterator[str]:
        values, allowed = _enumerated(sent), _enumerated(taken)
        if allowed is None:
            return
        if values is None:
            yield f"{at}: it may be any value now" if self.is_answer else f"{at}: it must be one of {len(allowed)} values"
            return
        for value in values:
            if value not in allowed:
                yield f"{at}: it may be {value} now" if self.is_answer else f"{at}: {value} is not taken any more"

    def _members(self, sent: Json, taken: Json, at: str, seen: frozenset[Any]) -> Iterator[str]:
        members, known = sent.get("properties", {}), taken.get("properties", {})
        for name in sorted(set(taken.get("required", ())) - set(sent.get("required", ()))):
            if not self.is_answer:
                yield f"{at}/{name} is required"
            elif name in members:
                yield f"{at}/{name} may be missing now"
        for name in known if self.is_answer else members:
            if name in known and name in members:
                yield from self.narrowed(members[name], known[name], f"{at}/{name}", seen)
            elif self.is_answer or taken.get("additionalProperties") is False:
                yield f"{at}/{name} is gone"
        extra = taken.get("additionalProperties")
        if isinstance(extra, dict):
            yield from self.narrowed(sent.get("additionalProperties") or {}, extra, f"{at}/*", seen)


def _alternatives(reader: Reader, schema: Json) -> list[Json]:
    schema = reader.read(schema)
    for kind in ("anyOf", "oneOf"):
        if kind in schema:
            return [alternative for choice in schema[kind] for alternative in _alternatives(reader, choice)]
    return [schema]


def _enumerated(schema: Json) -> list[Any] | None:
    return [schema["const"]] if "const" in schema else schema.get("enum")
