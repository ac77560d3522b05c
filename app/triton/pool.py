"""Several Tritons as one."""

import random
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from math import ceil
from time import monotonic
from typing import Generic, TypeVar

from app.deadline import Deadline
from app.errors import BadUpstreamResponse, DeadlineExceeded, ModelUnavailable, Refusal, Unavailable
from app.telemetry.span import Span
from app.telemetry.tracing import propagated, untraced
from app.triton.budget import RetryBudget
from app.triton.client import CallFailed, Endpoint
from app.triton.discovery import Roster
from app.triton.health import QUICK, soonest
from app.triton.query import Query
from app.triton.record import SUSPICIOUS
from app.triton.status import BAD_ANSWER, LATE, MODELS_OWN, Failure

_PAUSE = 1.0
"""Seconds until the first probe, where something was computed in vain."""

DENIED = "denied"
"""The outcome of a second try that was never made, since the budget for them is spent."""
Answered = TypeVar("Answered")


@dataclass(frozen=True, slots=True)
class Observed:
    """One call to one endpoint, as it ended; `again` where it was the second try."""

    endpoint: str
    ensemble: str
    outcome: str
    seconds: float = 0.0
    again: bool = False


@dataclass(frozen=True, slots=True)
class Batch(Generic[Answered]):
    """A query, serialised."""

    query: Query[Answered]
    request: bytes
    step: Callable[[], AbstractContextManager[Span | None]] = untraced
    """Opens the span of each call."""

    @property
    def ensemble(self) -> str:
        return self.query.ensemble.name

    def blamed(self, failure: Failure) -> Failure:
        """The failure, cleared of all suspicion where it may be the caller's doing."""
        return failure if self.query.telling or failure not in MODELS_OWN else replace(failure, suspect="none")


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

    async def infer(self, batch: Batch[Answered], deadline: Deadline) -> tuple[str, Answered]:
        """The version of the model that answered, and the verified answer."""
        if deadline.remaining() <= 0:
            raise DeadlineExceeded("the time given was used up before the model was asked")
        name = batch.ensemble
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

    async def probe(self, endpoint: Endpoint, batch: Batch[Answered], deadline: Deadline) -> None:
        """Ask an ejected endpoint for real; what it does then decides whether it is back."""
        name = batch.ensemble
        failure: Failure | None = None
        try:
            await self._call(endpoint, batch, deadline)
        except CallFailed as failed:
            failure = batch.blamed(failed.failure)
        except BadUpstreamResponse:
            failure = batch.blamed(BAD_ANSWER)
        except DeadlineExceeded:
            failure = LATE
        if failure is None or failure.suspect == "none":
            endpoint.health.reinstate(name)
        else:
            endpoint.health.eject(name, failure.name, _PAUSE)

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

    async def _call(
        self, endpoint: Endpoint, batch: Batch[Answered], deadline: Deadline, *, again: bool = False
    ) -> tuple[str, Answered]:
        """Raises `CallFailed` and `BadUpstreamResponse`."""
        with batch.step() as span:
            return await self._traced(endpoint, batch, deadline, span, again=again)

    async def _traced(
        self, endpoint: Endpoint, batch: Batch[Answered], deadline: Deadline, span: Span | None, *, again: bool
    ) -> tuple[str, Answered]:
        name = batch.ensemble
        record = endpoint.health.record(name)
        began = monotonic()
        call = record.begin(began)
        outcome = "cancelled"
        try:
            response = await endpoint.infer(batch.request, deadline, propagated(span))
            if not _is_version(response.model_version):
                raise BadUpstreamResponse("the answer's version is no number")
            if span is not None:
                span.attributes["triton.model_version"] = response.model_version
                span.attributes["conch.response_bytes"] = sum(map(len, response.raw_output_contents))
            answered = batch.query.read(response)
            outcome = "ok"
            return response.model_version, answered
        except CallFailed as failed:
            outcome = failed.failure.name
            self._judge(endpoint, name, call, batch.blamed(failed.failure))
            raise
        except BadUpstreamResponse:
            outcome = BAD_ANSWER.name
            self._judge(endpoint, name, call, batch.blamed(BAD_ANSWER))
            raise
        finally:
            if outcome == "ok":
                record.succeed(call, monotonic())
            elif outcome == "cancelled":
                record.give_up(call, monotonic(), late=False)
            if span is not None:
                span.attributes |= {"conch.endpoint": endpoint.address, "conch.outcome": outcome, "conch.retry": again}
                span.failure = "" if outcome == "ok" else outcome
            self._observe(Observed(endpoint.address, name, outcome, monotonic() - began, again))

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
        healths = [endpoint.health for endpoint in self.roster.endpoints]
        wait = ceil(soonest(healths, (ensemble,), monotonic()))
        if not any(health.reachable for health in healths):
            return Unavailable("no model server can be reached", retry_after=wait)
        return ModelUnavailable("no model server serves this model at present", retry_after=wait)


def _is_version(text: str) -> bool:
    return text.isascii() and text.isdecimal()
