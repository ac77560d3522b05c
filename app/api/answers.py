"""Rows of tensors to what a client reads."""

from array import array
from base64 import b64encode
from collections.abc import Iterator, Sequence
from heapq import nlargest
from math import hypot
from typing import Any, Literal

from app.calls.texts import Answer
from app.telemetry.exchange import Exchange

Json = dict[str, Any]
Unit = Literal["codepoint", "utf16", "byte"]

_ALL_UP_TO, _ELSE = 10, 5


def version(answer: Answer) -> str:
    return f"{answer.ensemble.name}:{answer.version}"


def usage(exchange: Exchange, answer: Answer) -> Json:
    tokens = exchange.tokens if "tokens" in answer.rows else None
    return {"inputs": exchange.inputs, "characters": exchange.characters, "tokens": tokens}


def remark(answer: Answer, at: int) -> Json:
    """What is said of a text beside its answer."""
    tokens, truncated = (answer.rows.get(role) for role in ("tokens", "truncated"))
    return {"tokens": tokens and tokens[at][0], "truncated": truncated and bool(truncated[at][0])}


def remarks(answer: Answer) -> Iterator[Json]:
    """Of all texts, in their order."""
    for tokens, truncated in zip(answer.column("tokens"), answer.column("truncated"), strict=True):
        yield {"tokens": tokens, "truncated": None if truncated is None else bool(truncated)}


def labelled(scores: Sequence[float], labels: Sequence[str], top_k: int | None) -> list[Json]:
    """The best labels first. Six decimals: more than a score can mean, and a third of the bytes."""
    count = top_k or (len(labels) if len(labels) <= _ALL_UP_TO else _ELSE)
    return [
        {"label": labels[at], "score": round(scores[at], 6)} for at in nlargest(count, range(len(labels)), scores.__getitem__)
    ]


def shortened(row: "array[float]", dimensions: int | None) -> "array[float]":
    """The first numbers of a vector, to length 1."""
    if dimensions is None or dimensions == len(row):
        return row
    length = hypot(*row[:dimensions]) or 1.0
    return array("f", [number / length for number in row[:dimensions]])


def vector(row: "array[float]", encoding: str) -> list[float] | str:
    return b64encode(row.tobytes()).decode("ascii") if encoding == "base64" else row.tolist()


def classified(answer: Answer, top_k: int | None) -> list[Json]:
    labels = answer.ensemble.labels["scores"]
    pairs = zip(answer.rows["scores"], remarks(answer), strict=True)
    return [{"labels": labelled(scores, labels, top_k), **remark} for scores, remark in pairs]


def embedded(answer: Answer, encoding: str, dimensions: int | None) -> list[Json]:
    pairs = zip(answer.rows["embedding"], remarks(answer), strict=True)
    return [{"embedding": vector(shortened(row, dimensions), encoding), **remark} for row, remark in pairs]


def analyzed(answer: Answer, top_k: int | None, encoding: str) -> list[Json]:
    heads = {role: labels for role, labels in answer.ensemble.labels.items() if role in answer.rows}
    results: list[Json] = [
        {"heads": {role: labelled(answer.rows[role][at], labels, top_k) for role, labels in heads.items()}, **remark}
        for at, remark in enumerate(remarks(answer))
    ]
    for result, row in zip(results, answer.rows.get("embedding", ()), strict=False):
        result["embedding"] = vector(row, encoding)
    return results


def entities(answer: Answer, texts: Sequence[str], unit: Unit, *, include_text: bool) -> list[Json]:
    labels = answer.ensemble.labels["spans"]
    parts = zip(texts, answer.rows["spans"], answer.rows["span_scores"], remarks(answer), strict=True)
    return [
        {"entities": _found(text, spans, scores, labels, unit, include_text=include_text), **remark}
        for text, spans, scores, remark in parts
    ]


def _found(
    text: str, spans: "array[int]", scores: "array[float]", labels: Sequence[str], unit: Unit, *, include_text: bool
) -> list[Json]:
    measure = _Ruler(text, unit)
    found = []
    for at, score in enumerate(scores):
        start, end, label = spans[3 * at : 3 * at + 3]
        if start < 0:
            break  # padding, up to the longest list of the batch
        entity: Json = {"label": labels[label], "start": measure(start), "end": measure(end), "score": round(score, 6)}
        if include_text:
            entity["text"] = text[start:end]
        found.append(entity)
    return found


class _Ruler:
    """Code points to the caller's unit. It remembers where it was, so that a text is measured once, whatever it holds."""

    def __init__(self, text: str, unit: Unit) -> None:
        self._text = text
        self._codec = {"utf16": "utf-16-le", "byte": "utf-8"}.get(unit)
        self._size = 2 if unit == "utf16" else 1
        self._at = self._measured = 0

    def __call__(self, position: int) -> int:
        if self._codec is None:
            return position
        low, high = sorted((self._at, position))
        units = len(self._text[low:high].encode(self._codec)) // self._size
        self._measured += units if position >= self._at else -units
        self._at = position
        return self._measured
