"""Several Tritons as one."""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import ceil
from time import monotonic

from app.deadline import Deadline
from app.errors import BadUpstreamResponse, DeadlineExceeded, ModelUnavailable, Refusal, Unavailable
from app.triton.budget import RetryBudget
from app.triton.client import CallFailed, Endpoint, Metadata
from app.triton.discovery import Roster
from app.triton.ensemble import Ensemble
from app.triton.health import QUICK
from app.triton.record import SUSPICIOUS
from app.triton.status import BAD_ANSWER, LATE, Failure
from app.triton.tensor import Rows

_PAUSE = 1.0
"""Seconds until the first probe, where something was computed in vain."""

DENIED = "denied"
"""The outcome of a second try that was never made, since the budget for them is spent."""
Rowset = tuple[str, dict[str, Rows]]
"""The version of the model that answered, and the verified rows of each role."""


@dataclass(frozen=True, slots=True)
class Observed:
    """One call to one endpoint, as it ended; `again` where it was the second try."""

    endpoint: str
    ensemble: str
    outcome: str
    again: bool = False


@dataclass(frozen=True, slots=True)
class Batch:
    """A serialised request for `size` items, and what its answer must have to be trusted."""

    ensemble: Ensemble
    request: bytes
    roles: tuple[str, ...]
    size: int
    metadata: Metadata = ()


class Pool:
    """Chooses an endpoint for each call, and tries one other where the first never executed it or was cut off.

    Inference is pure, so that a second try is safe; it is never made after a deadline or a full queue, since it would add load
    exactly where there is too much of it. `observe` is told of every call, `alarm` of every ensemble on an endpoint that may be
    another one than was checked.
    """

    def __init__(
        self, roster: Roster, observe: Callable[[Observed], None], alarm: Callable[[Endpoint, str], None], budget: RetryBudget
    ) -> None:
        self.roster = roster
        self._observe = observe
        self._alarm = alarm
        self._budget = budget

    async def infer(self, batch: Batch, deadline: Deadline) -> Rowset:
        if deadline.remaining() <= 0:
            raise DeadlineExceeded("the time given was used up before the model was asked")
        name = batch.ensemble.name
        endpoint = self._choose(name)
        if endpoint is None:
            raise self._nobody(name)
        self._budget.deposit()
        try:
            return await self._call(endpoint, batch, deadline)
        except CallFailed as failed:
            other = self._elsewhere(endpoint, name, deadline) if failed.failure.elsewhere else None
            if other is None:
                raise failed.failure.refuse() from failed
        try:
            return await self._call(other, batch, deadline, again=True)
        except CallFailed as failed:
            raise failed.failure.refuse() from failed

    async def probe(self, endpoint: Endpoint, batch: Batch, deadline: Deadline) -> None:
        """Ask an ejected endpoint for real; what it does then decides whether it is back."""
        name = batch.ensemble.name
        try:
            await self._call(endpoint, batch, deadline)
        except CallFailed as failed:
            endpoint.health.eject(name, failed.failure.name, _PAUSE)
        except Refusal as refusal:
            endpoint.health.eject(name, refusal.code, _PAUSE)
        else:
            endpoint.health.reinstate(name)

    def due(self) -> Iterator[tuple[Endpoint, str]]:
        """The ejected ensembles that should be probed now; what hangs is ejected first."""
        now = monotonic()
        for endpoint in self.roster.endpoints:
            for name in endpoint.health.serving:
                if endpoint.health.record(name).hung(now):
                    endpoint.health.eject(name, "hung", _PAUSE)
            for name in endpoint.health.due(now):
                yield endpoint, name

    def service_seconds(self, ensemble: str) -> float:
        """How long an answer takes at most, but for the slowest hundredth; 0 while there was none."""
        return max((endpoint.health.record(ensemble).slow for endpoint in self.roster.endpoints), default=0.0)

    async def _call(self, endpoint: Endpoint, batch: Batch, deadline: Deadline, *, again: bool = False) -> Rowset:
        """Raises `CallFailed` and `BadUpstreamResponse`."""
        name = batch.ensemble.name
        record = endpoint.health.record(name)
        call = record.begin(monotonic())
        outcome = "cancelled"
        try:
            response = await endpoint.infer(batch.request, deadline, batch.metadata)
            rows = batch.ensemble.read(response, batch.roles, batch.size)
            outcome = "ok"
            return response.model_version, rows
        except CallFailed as failed:
            outcome = failed.failure.name
            self._judge(endpoint, name, call, failed.failure)
            raise
        except BadUpstreamResponse:
            outcome = BAD_ANSWER.name
            self._judge(endpoint, name, call, BAD_ANSWER)
            raise
        finally:
            if outcome == "ok":
                record.succeed(call, monotonic())
            elif outcome == "cancelled":
                record.give_up(call, monotonic(), late=False)
            self._observe(Observed(endpoint.address, name, outcome, again))

    def _choose(self, ensemble: str, besides: Endpoint | None = None) -> Endpoint | None:
        """The less busy of two random endpoints that serve the ensemble."""
        serving = [
            endpoint for endpoint in self.roster.endpoints if ensemble in endpoint.health.serving and endpoint is not besides
        ]
        if len(serving) < 2:
            return serving[0] if serving else None
        one, two = serving if len(serving) == 2 else random.sample(serving, 2)
        if one.in_flight == two.in_flight:
            return one if random.random() < 0.5 else two  # noqa: S311
        return one if one.in_flight < two.in_flight else two

    def _elsewhere(self, first: Endpoint, ensemble: str, deadline: Deadline) -> Endpoint | None:
        """Where a second try may go."""
        other = self._choose(ensemble, besides=first)
        if other is None or deadline.remaining() <= 0:
            return None
        if not self._budget.spend():
            self._observe(Observed(other.address, ensemble, DENIED, again=True))
            return None
        return other

    def _judge(self, endpoint: Endpoint, name: str, call: int, failure: Failure) -> None:
        """What a failure says of the endpoint, written down and acted upon."""
        health = endpoint.health
        record = health.record(name)
        match failure.suspect:
            case "silence" if failure is LATE:
                record.give_up(call, monotonic(), late=True)
            case "silence":
                record.shed(call, monotonic())
            case "doubt" | "contract":
                record.fail(call)
            case _:
                record.close(call)
        match failure.suspect:
            case "contract":
                self._alarm(endpoint, name)
            case "ensemble" | "ensembles":
                first = _PAUSE if failure.executed else QUICK
                # A probe that fails says nothing of those that have proven well since.
                if name in health.serving:
                    for ill in health.serving if failure.suspect == "ensembles" else (name,):
                        health.eject(ill, failure.name, first)
                self._alarm(endpoint, name)
            case "endpoint":
                health.lose(failure.name)
                self._alarm(endpoint, name)
        if record.failures >= SUSPICIOUS and name in health.serving and self._may_spare(name):
            health.eject(name, f"suspected: {failure.name}", _PAUSE)

    def _may_spare(self, ensemble: str) -> bool:
        """Whether one more may go on suspicion alone: at most half of those that are fit to serve."""
        fit = [endpoint.health.record(ensemble) for endpoint in self.roster.endpoints if ensemble in endpoint.health.checked]
        return 2 * (sum(bool(record.reason) for record in fit) + 1) <= len(fit)

    def _nobody(self, ensemble: str) -> Refusal:
        endpoints = self.roster.endpoints
        if not any(endpoint.health.reachable for endpoint in endpoints):
            return Unavailable("no model server can be reached", retry_after=1)
        waits = [
            record.probe_at - monotonic()
            for endpoint in endpoints
            if ensemble in endpoint.health.checked and (record := endpoint.health.record(ensemble)).reason
        ]
        return ModelUnavailable("no model server serves this model at present", retry_after=max(1, ceil(min(waits, default=1))))
