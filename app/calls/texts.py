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

_PART_CHARACTERS = 256 * 1024
"""Of a part of several texts, so that it is written in a moment."""
_WINDOW_PARTS = 64
"""Among so many parts' texts those of like length are looked for."""


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
        exchange = passage.exchange
        asking = _Asking(self, ensemble, roles, query, passage)
        if len(self.texts) <= ensemble.max_batch and exchange.characters <= _PART_CHARACTERS:
            rows = await asking.part(range(len(self.texts)))
        else:
            rows = await asking.parts()
        exchange.triton = monotonic() - started
        answer = Answer(route, ensemble, asking.version, rows, asking.flaws)
        if answer.flaws and not self.lenient:
            flaws = (answer.flaws[at] for at in sorted(answer.flaws))
            raise InvalidInput("a text can't be answered as asked", flaws=tuple(islice(flaws, MAX_FLAWS)))
        return answer


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


@dataclass(slots=True)
class _Asking:
    """Asks for the texts of a call, part by part: so that no step takes the longer, the more texts there are."""

    call: Call
    ensemble: Ensemble
    roles: tuple[str, ...]
    query: bytes | None
    passage: Passage
    version: str = ""
    flaws: dict[int, Flaw] = field(default_factory=dict)

    async def part(self, places: Sequence[int]) -> dict[str, Rows]:
        """The rows of the texts at these places."""
        texts = [self.call.texts[at].encode() for at in places]
        self.version, rows = await self.passage.ask(Texts(self.ensemble, self.roles, texts, self.query))
        if "tokens" in rows:
            self.passage.exchange.tokens += sum([row[0] for row in rows["tokens"]])
        if not self.call.truncate or any(rows.get("error", ())):
            self.flaws.update(_flaws(self.call, rows, places))
        return rows

    async def parts(self) -> dict[str, Rows]:
        """The rows of all texts."""
        whole: dict[str, Rows] = {}
        parts = _parted(self.call.texts, self.ensemble.max_batch)

        async def work() -> None:
            for places in parts:
                for role, rows in (await self.part(places)).items():
                    merged = whole.setdefault(role, [None] * len(self.call.texts))
                    for at, row in zip(places, rows, strict=True):
                        merged[at] = row

        tasks = [asyncio.ensure_future(work()) for _ in range(self.passage.parallelism)]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
        return whole


def _parted(texts: Sequence[str], most: int) -> Iterator[list[int]]:
    """Places in parts of up to `most`. Texts of like length travel together, since each part is padded to its longest."""
    window = most * _WINDOW_PARTS
    for start in range(0, len(texts), window):
        part: list[int] = []
        room = _PART_CHARACTERS
        for at in sorted(range(start, min(start + window, len(texts))), key=lambda at: len(texts[at])):
            room -= len(texts[at])
            if part and (len(part) == most or room < 0):
                yield part
                part, room = [], _PART_CHARACTERS - len(texts[at])
            part.append(at)
        yield part


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


def _flaws(call: Call, rows: Mapping[str, Rows], places: Sequence[int]) -> Iterator[tuple[int, Flaw]]:
    """Which of the texts at these places can't be answered as asked, and why."""
    if not call.truncate:
        for at, (truncated,) in zip(places, rows["truncated"], strict=True):
            if truncated:
                yield at, Flaw(call.pointer(at), "too_long_for_model", "the model would cut this text, and truncate is false")
    for at, error in zip(places, rows.get("error", ()), strict=False):
        if error:
            yield at, Flaw(call.pointer(at), "refused_by_model", "the model can't read this text")
