"""The public models and what stands behind them; everything here is immutable."""

import random
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass, field, replace
from itertools import islice
from math import ceil
from time import monotonic
from typing import Literal

from app.errors import Flaw, InvalidInput, ModelUnavailable, Unavailable, UnknownModel
from app.routing.task import Task
from app.tenancy.tenant import Tenant
from app.triton.ensemble import Ensemble

PROBE = "The quick brown fox jumps over the lazy dog."
"""What an endpoint is asked for, where the route names no text of its own, before it serves again."""
MOST_INPUTS = 100_000
MOST_CHARACTERS = 10_000_000
"""Of a route's caps; the OpenAPI document promises that no model takes more."""
MAX_FLAWS = 16
"""How many faults of one request are named; a request of 10,000 bad items gets no 1 MB answer."""


@dataclass(frozen=True, slots=True)
class Caps:
    """What one request to a route may hold at most. `allow_empty`: whether an item may be the empty string."""

    inputs: int = 256
    characters_per_input: int = 20_000
    characters: int = 200_000
    allow_empty: bool = False

    def admit(self, texts: Sequence[Sized], field: str, pointer: Callable[[int], str]) -> int:
        """The characters of all texts together; raises `InvalidInput` that points to what is outside the caps."""
        if not texts:
            raise _outside(field, "too_few", f"{_member(field)} must hold at least one text")
        if len(texts) > self.inputs:
            raise _outside(field, "too_many", f"{_member(field)} may hold at most {self.inputs} texts for this model")
        lengths = list(map(len, texts))
        if max(lengths) > self.characters_per_input or (min(lengths) == 0 and not self.allow_empty):
            flaws = tuple(islice(self._flaws(lengths, pointer), MAX_FLAWS))
            raise InvalidInput("a text is outside this model's rules", flaws=flaws)
        total = sum(lengths)
        if total > self.characters:
            raise _outside(field, "too_long", f"this model takes at most {self.characters} characters in a request")
        return total

    def admit_pairs(self, query: str, texts: Sequence[str], field: str, pointer: Callable[[int], str]) -> int:
        """The same where each text is read beside a query, which counts as often."""
        total = self.admit(texts, field, pointer) + len(texts) * self.admit([query], "/query", lambda _: "/query")
        if total > self.characters:
            detail = f"this model takes at most {self.characters} characters in a request; the query counts for each text"
            raise _outside(field, "too_long", detail)
        return total

    def admit_all(self, characters: int) -> None:
        """Raises `InvalidInput` where several inputs together are outside the caps."""
        if characters > self.characters:
            raise _outside(
                "/inputs", "too_long", f"this model takes at most {self.characters} characters and bytes in a request"
            )

    def _flaws(self, lengths: list[int], pointer: Callable[[int], str]) -> Iterator[Flaw]:
        for at, length in enumerate(lengths):
            if length > self.characters_per_input:
                yield Flaw(pointer(at), "too_long", f"at most {self.characters_per_input} characters; this has {length}")
            elif length == 0 and not self.allow_empty:
                yield Flaw(pointer(at), "empty", "this model takes no empty text")


def _member(field: str) -> str:
    return field.rpartition("/")[2]


def _outside(field: str, code: str, detail: str) -> InvalidInput:
    return InvalidInput(detail, flaws=(Flaw(field, code, detail),))


@dataclass(frozen=True, slots=True)
class Target:
    ensemble: str
    weight: int = 100


@dataclass(frozen=True, slots=True)
class Route:
    """One public model, as `routes.yaml` declares it. `tensors` maps roles to names; none means their own in capitals."""

    name: str
    task: Task
    targets: tuple[Target, ...]
    tensors: Mapping[str, str]
    labels: Mapping[str, tuple[str, ...]]
    caps: Caps
    timeout: float
    timeout_max: float
    concurrency: int | None
    """How many calls of one gateway may run at once; derived from the ensemble where it is None."""
    required: bool
    description: str
    probe: str = PROBE
    dimensions: tuple[int, ...] | Literal["any"] = ()
    """To how many numbers vectors may be cut beside their own length; only models that were trained for it bear that."""

    def seconds(self, timeout_ms: int | None) -> float:
        """The time that a request has: what it asks for, up to the route's maximum, or the route's default."""
        return self.timeout if timeout_ms is None else min(timeout_ms / 1000, self.timeout_max)


@dataclass(frozen=True, slots=True)
class Serving:
    """A route, and those of its targets that a live Triton can serve; `faults` say in a sentence each why others can't be."""

    route: Route
    ensembles: tuple[tuple[Ensemble, int], ...] = ()
    faults: tuple[str, ...] = ()
    reachable: bool = True
    """Whether any Triton can be asked."""
    again: float = 0.0
    """Where there is no ensemble: when there may be one, on the monotonic clock."""

    def remarks(self) -> list[str]:
        return list(dict.fromkeys(remark for ensemble, _ in self.ensembles for remark in ensemble.remarks))

    def choose(self, version: str = "") -> Ensemble:
        """One of the ensembles, by weight; raises `Unavailable` or `ModelUnavailable` where there is none, and `UnknownModel`
        where none has the version, if one is asked for.
        """
        if version:
            return self.of_version(version).choose()
        if len(self.ensembles) == 1:
            return self.ensembles[0][0]
        if not self.ensembles:
            wait = max(1, ceil(self.again - monotonic()))
            if not self.reachable:
                raise Unavailable("no model server can be reached", retry_after=wait)
            raise ModelUnavailable("this model is not ready at present", retry_after=wait)
        ensembles = [ensemble for ensemble, _ in self.ensembles]
        return random.choices(ensembles, [weight for _, weight in self.ensembles])[0]  # noqa: S311

    def of_version(self, version: str) -> "Serving":
        """Those of its ensembles that have the version; raises `UnknownModel` where none does."""
        having = tuple(pair for pair in self.ensembles if version in pair[0].signature.versions)
        if self.ensembles and not having:
            raise UnknownModel("this model has no such version")
        return replace(self, ensembles=having)


def suffices(servings: Collection[Serving]) -> bool:
    """Every required route is served; where none is required, one that is served will do."""
    required = [serving for serving in servings if serving.route.required]
    return all(serving.ensembles for serving in required) if required else any(serving.ensembles for serving in servings)


@dataclass(frozen=True, slots=True)
class RouteTable:
    servings: Mapping[str, Serving] = field(default_factory=dict)

    def resolve(self, model: str, task: str | None, tenant: Tenant) -> Serving:
        """Of any task, where that is None. Raises `UnknownModel` where the tenant may not see the model, exactly as where there
        is none.
        """
        serving = self.servings.get(model)
        if serving is None or not tenant.may_see(model):
            raise UnknownModel("there is no such model among those that this tenant may call; GET /v1/models lists them")
        if task is not None and serving.route.task.name != task:
            flaw = Flaw("/model", "wrong_task", f"this model's task is {serving.route.task.name}")
            raise InvalidInput("this model does another task", flaws=(flaw,))
        return serving

    def visible(self, tenant: Tenant) -> list[Serving]:
        return [serving for name, serving in self.servings.items() if tenant.may_see(name)]
