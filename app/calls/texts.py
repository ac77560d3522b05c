"""Texts, asked of a model by its task."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from time import monotonic
from typing import ClassVar

from app.errors import Flaw, InvalidInput
from app.gateway import Passage
from app.routing.route import MAX_FLAWS, Caps, Route
from app.routing.task import features
from app.triton.ensemble import Ensemble
from app.triton.query import Texts
from app.triton.tensor import Rows

Part = tuple[str, dict[str, Rows]]
"""The version that answered a part of the texts, and its rows by role."""


@dataclass(frozen=True, slots=True)
class Call:
    """A request, parsed. `field` is the JSON pointer to its text, or to its list of texts where it is `listed`."""

    version: ClassVar[str] = ""

    task: str
    model: str
    texts: Sequence[str]
    field: str = "/inputs"
    listed: bool = True
    features: Sequence[str] = ()
    """The heads that are asked for; all of them where it is empty."""
    query: str | None = None
    """What each text is read beside."""
    dimensions: int | None = None
    """The length that vectors must have."""
    truncate: bool = True
    timeout_ms: int | None = None
    lenient: bool = False
    """Whether items that can't be answered are told as the answer's flaws, and spare the others."""

    def pointer(self, at: int) -> str:
        return f"{self.field}/{at}" if self.listed else self.field

    def admit(self, caps: Caps) -> tuple[int, int]:
        if self.query is not None:
            return len(self.texts), caps.admit_pairs(self.query, self.texts, self.field, self.pointer)
        return len(self.texts), caps.admit(self.texts, self.field, self.pointer)

    def addressed(self, route: Route, ensemble: Ensemble) -> "Callable[[Passage], Awaitable[Answer]]":
        if self.dimensions is not None:
            _refuse_length(self.dimensions, route, ensemble)
        return partial(self._ask, route, ensemble, _roles(self, ensemble))

    async def _ask(self, route: Route, ensemble: Ensemble, roles: tuple[str, ...], passage: Passage) -> "Answer":
        """In as many parts as the ensemble's batch size makes of the texts."""
        started = monotonic()
        query = None if self.query is None else self.query.encode()
        whole = Texts(ensemble, roles, [text.encode() for text in self.texts], query)
        version, rows = await (passage.ask(whole) if whole.size <= ensemble.max_batch else _split(whole, passage))
        passage.exchange.triton = monotonic() - started
        answer = Answer(route, ensemble, version, rows)
        passage.exchange.tokens = sum(count or 0 for count in answer.column("tokens"))
        flaws = dict(_flaws(self, answer))
        if not flaws:
            return answer
        if not self.lenient:
            raise InvalidInput("an input can't be answered as asked", flaws=tuple(islice(flaws.values(), MAX_FLAWS)))
        return replace(answer, flaws=flaws)


@dataclass(frozen=True, slots=True)
class Answer:
    """The verified rows of each role, one for each text, in the order of the texts."""

    route: Route
    ensemble: Ensemble
    version: str
    rows: dict[str, Rows]
    flaws: Mapping[int, Flaw] = field(default_factory=dict)
    """Why an item has no answer, where the call was lenient."""

    def part(self, start: int, end: int) -> "Answer":
        """The answers to some of the texts."""
        if start == 0 and end >= len(next(iter(self.rows.values()))):
            return self
        return replace(self, rows={role: rows[start:end] for role, rows in self.rows.items()})

    def column(self, role: str) -> list[int | None]:
        """The values of a role that has one number for each text; None for each where the ensemble does not publish it."""
        rows = self.rows.get(role)
        size = len(next(iter(self.rows.values())))
        return [None] * size if rows is None else [row[0] for row in rows]


async def _split(whole: Texts, passage: Passage) -> Part:
    """Texts of like length travel together, since each part is padded to its longest."""
    texts, size = whole.texts, whole.ensemble.max_batch
    order = sorted(range(len(texts)), key=lambda at: len(texts[at]))
    parts = [order[at : at + size] for at in range(0, len(order), size)]
    turns = asyncio.Semaphore(passage.parallelism)

    async def run(part: list[int]) -> Part:
        async with turns:
            return await passage.ask(replace(whole, texts=[texts[at] for at in part]))

    tasks = [asyncio.ensure_future(run(part)) for part in parts]
    try:
        answers = await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
    return answers[0][0], {role: _merged(role, parts, answers) for role in answers[0][1]}


def _merged(role: str, parts: list[list[int]], answers: Sequence[Part]) -> Rows:
    merged: Rows = [None] * sum(map(len, parts))
    for part, (_, rows) in zip(parts, answers, strict=True):
        for at, row in zip(part, rows[role], strict=True):
            merged[at] = row
    return merged


def _refuse_length(asked: int, route: Route, ensemble: Ensemble) -> None:
    """Unless vectors are of that length, or may be cut to it."""
    (own,) = ensemble.outputs["embedding"].dims
    if route.dimensions == "any":
        fits, known = asked <= own, f"at most {own}"
    else:
        lengths = sorted({*route.dimensions, own})
        fits, known = asked in lengths, f"{'one of' if len(lengths) > 1 else 'only'} {', '.join(map(str, lengths))}"
    if not fits:
        raise InvalidInput("this model's vectors can't have that length", flaws=(Flaw("/dimensions", "not_supported", known),))


def _roles(call: Call, ensemble: Ensemble) -> tuple[str, ...]:
    """The outputs to ask for; raises `InvalidInput` where one that was asked for can't be had."""
    if not call.truncate and "truncated" not in ensemble.outputs:
        flaw = Flaw("/truncate", "not_supported", "this model does not say what it cuts, so that it must be allowed to")
        raise InvalidInput("this model can't refuse long texts by itself", flaws=(flaw,))
    if not call.features:
        return tuple(ensemble.outputs)
    heads = features(ensemble.outputs)
    flaws = [
        Flaw(f"/features/{at}", "unknown_feature", f"this model has {', '.join(heads)}")
        for at, feature in enumerate(call.features)
        if feature not in heads
    ]
    if flaws:
        raise InvalidInput("a feature is unknown to this model", flaws=tuple(flaws))
    return tuple(role for role in ensemble.outputs if role in call.features or role not in heads)


def _flaws(call: Call, answer: Answer) -> Iterator[tuple[int, Flaw]]:
    """Which items can't be answered as asked, and why."""
    if not call.truncate:
        for at, truncated in enumerate(answer.column("truncated")):
            if truncated:
                yield at, Flaw(call.pointer(at), "too_long_for_model", "the model would cut this text, and truncate is false")
    for at, error in enumerate(answer.rows.get("error", ())):
        if error:
            yield at, Flaw(call.pointer(at), "refused_by_model", "the model can't read this text")
