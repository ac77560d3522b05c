"""How far answers agree with those of an earlier system."""

import heapq
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import sqrt
from typing import Any

_WORST = 10


@dataclass(frozen=True, slots=True, order=True)
class Difference:
    """`size` orders them: our score of another label, the distance of two scores, or 1 - cosine of two vectors."""

    size: float
    number: int
    name: str
    words: str


class Incomparable(Exception):
    pass


@dataclass(slots=True)
class Agreement:
    """A text is compared with the best label, a number with a score, an object with the scores of its labels, a list with a
    vector. `label` is the one whose score a number is; the best one, if it is empty.
    """

    tolerance: float
    label: str = ""
    compared: int = 0
    agreed: int = 0
    left_out: int = 0
    """Lines without an answer, or with nothing that it can be compared with."""
    worst: list[Difference] = field(default_factory=list)

    @property
    def share(self) -> float:
        return self.agreed / self.compared if self.compared else 0.0

    def add(self, expected: Any, answer: dict[str, Any]) -> None:
        try:
            size, words = self._difference(_read(expected), answer.get("result") or {})
        except Incomparable:
            self.left_out += 1
            return
        self.compared += 1
        if not words:
            self.agreed += 1
            return
        heapq.heappush(self.worst, Difference(size, answer["index"], str(answer.get("id", "")), words))
        if len(self.worst) > _WORST:
            heapq.heappop(self.worst)

    def report(self) -> Iterator[str]:
        yield f"{self.compared} lines compared, {self.agreed} agree ({self.share:.2%}); {self.left_out} could not be compared"
        for difference in sorted(self.worst, reverse=True):
            name = f" ({difference.name})" if difference.name else ""
            yield f"  line {difference.number}{name}: {difference.words}"

    def _difference(self, expected: Any, result: dict[str, Any]) -> tuple[float, str]:
        """Its size, and in words where it matters."""
        match expected, result:
            case str(), {"labels": [{"label": got, "score": score}, *_]}:
                return score, "" if got == expected else f"expected {expected}, got {got} with {score:.4f}"
            case float() | int(), {"labels": [best, *_] as labels}:
                return self._distance({self.label or best["label"]: expected}, labels)
            case dict(), {"labels": list(labels)}:
                return self._distance(expected, labels)
            case list(), {"embedding": list(vector)} if len(vector) == len(expected):
                cosine = _cosine(expected, vector)
                return 1 - cosine, "" if 1 - cosine <= self.tolerance else f"the cosine of both vectors is {cosine:.4f}"
        raise Incomparable

    def _distance(self, expected: dict[str, Any], labels: Sequence[dict[str, Any]]) -> tuple[float, str]:
        scores = {label["label"]: label["score"] for label in labels}
        if not expected or not expected.keys() <= scores.keys():
            raise Incomparable
        size, label = max((abs(scores[label] - score), label) for label, score in expected.items())
        words = f"expected {label} with {expected[label]:.4f}, got {scores[label]:.4f}"
        return size, words if size > self.tolerance else ""


def _read(expected: Any) -> Any:
    """A cell of a CSV file may hold a number or JSON."""
    if not isinstance(expected, str):
        return expected
    try:
        value = json.loads(expected)
    except ValueError:
        return expected
    return value if isinstance(value, (float, int, dict, list)) and not isinstance(value, bool) else expected


def _cosine(one: Sequence[float], other: Sequence[float]) -> float:
    lengths = sqrt(sum(number * number for number in one)) * sqrt(sum(number * number for number in other))
    return sum(a * b for a, b in zip(one, other, strict=True)) / lengths if lengths else 0.0
