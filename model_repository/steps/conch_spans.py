"""The labels of words to spans of the text."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import numpy.typing as npt
from conch_step import Tensors, Unfit

Array = npt.NDArray[Any]
NOTHING = 0


@dataclass(slots=True)
class Span:
    start: int
    end: int
    kind: int
    scores: list[float] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Labelled:
    """A word's characters, its label (0 for none, then B- and I- of each kind in turn), and how sure that is."""

    start: int
    end: int
    label: int
    score: float


class Spans:
    def __init__(self, _folder: Path | None = None, _parameters: dict[str, str] | None = None) -> None: ...

    def __call__(self, tensors: Tensors) -> Tensors:
        labels, scores, offsets = (tensors[name] for name in ("labels", "scores", "offsets"))
        if not labels.shape == scores.shape == offsets.shape[:-1]:
            raise Unfit("labels, scores and offsets must agree in shape")
        items = [list(spans(map(Labelled, *columns))) for columns in map(words_of, offsets, labels, scores)]
        most = max(1, *map(len, items))  # a tensor without elements is not safe on its way through Triton
        rows, sure = np.full((len(items), most, 3), -1, np.int32), np.zeros((len(items), most), np.float32)
        for item, found in enumerate(items):
            for number, span in enumerate(found):
                rows[item, number] = span.start, span.end, span.kind
                sure[item, number] = fmean(span.scores)
        return {"SPANS": rows, "SPAN_SCORES": sure}


def words_of(offsets: Array, labels: Array, scores: Array) -> Iterable[list[float]]:
    """Starts, ends, labels and scores of one item's words, in the order of the text: each word lies in one window alone."""
    known = offsets[..., 0] >= 0
    return (column.tolist() for column in (offsets[known][:, 0], offsets[known][:, 1], labels[known], scores[known]))


def spans(words: Iterable[Labelled]) -> Iterator[Span]:
    """One per entity: words of a kind are one where the later one is marked as inside (I-), or where no blank divides them.

    The network marks pieces of one e-mail address as beginnings, or leaves out its @: without a blank, one such gap is bridged.
    """
    current: Span | None = None
    unlabelled, unbroken, end = 0, True, 0
    for word in words:
        unbroken, end = unbroken and word.start == end, word.end
        if word.label == NOTHING:
            unlabelled += 1
            continue
        kind, inside = (word.label - 1) // 2, word.label % 2 == 0
        joins = (inside and unlabelled == 0) or (unbroken and unlabelled <= 1)
        if current is None or current.kind != kind or not joins:
            if current:
                yield current
            current = Span(word.start, word.end, kind)
        current.end = word.end
        current.scores.append(word.score)
        unlabelled, unbroken = 0, True
    if current:
        yield current
