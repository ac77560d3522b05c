"""Rows of tensors to what a client reads."""

from array import array
from base64 import b64encode
from collections.abc import Iterator, Sequence
from heapq import nlargest
from typing import Any, Literal

from app.errors import BadUpstreamResponse
from app.gateway import Answer

Json = dict[str, Any]
Unit = Literal["codepoint", "utf16", "byte"]

_ALL_UP_TO, _ELSE = 10, 5


def version(answer: Answer) -> str:
    return f"{answer.ensemble.name}:{answer.version}"


def usage(characters: int, answer: Answer) -> Json:
    counts = answer.column("tokens")
    tokens = None if None in counts else sum(count or 0 for count in counts)
    return {"inputs": len(counts), "characters": characters, "tokens": tokens}


def remarks(answer: Answer) -> Iterator[Json]:
    """What is said of each text beside its answer."""
    for tokens, truncated in zip(answer.column("tokens"), answer.column("truncated"), strict=True):
        yield {"tokens": tokens, "truncated": None if truncated is None else bool(truncated)}


def labelled(scores: Sequence[float], labels: Sequence[str], top_k: int | None) -> list[Json]:
    """The best labels first. Six decimals: more than a score can mean, and a third of the bytes."""
    count = top_k or (len(labels) if len(labels) <= _ALL_UP_TO else _ELSE)
    return [
        {"label": labels[at], "score": round(scores[at], 6)} for at in nlargest(count, range(len(labels)), scores.__getitem__)
    ]


def vector(row: "array[float]", encoding: str) -> list[float] | str:
    return b64encode(row.tobytes()).decode("ascii") if encoding == "base64" else row.tolist()


def entities(answer: Answer, texts: Sequence[str], unit: Unit, *, include_text: bool) -> list[list[Json]]:
    labels = answer.ensemble.labels["spans"]
    pairs = zip(texts, answer.rows["spans"], answer.rows["span_scores"], strict=True)
    return [_found(text, spans, scores, labels, unit, include_text=include_text) for text, spans, scores in pairs]


def _found(
    text: str, spans: "array[int]", scores: "array[float]", labels: Sequence[str], unit: Unit, *, include_text: bool
) -> list[Json]:
    if len(spans) != 3 * len(scores):
        raise BadUpstreamResponse("the answer has more or fewer scores than spans")
    measure = _Ruler(text, unit)
    found = []
    for at, score in enumerate(scores):
        start, end, label = spans[3 * at : 3 * at + 3]
        if start < 0:
            break  # padding, up to the longest list of the batch
        if not (start < end <= len(text) and 0 <= label < len(labels)):
            raise BadUpstreamResponse("the answer marks a place that the text does not have")
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
