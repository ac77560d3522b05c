"""The path of one request, told once and in order."""

from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from time import monotonic
from typing import Protocol, TypeVar

from app.admission.bulkhead import Bulkhead
from app.admission.limiter import Limiter, Verdict
from app.deadline import Deadline
from app.errors import Refusal, Unavailable, Unready
from app.routing.route import Caps, Route, RouteTable
from app.telemetry.exchange import Exchange
from app.telemetry.span import Kind, Span, Value
from app.telemetry.tracing import Tracing, untraced
from app.tenancy.tenant import Tenant
from app.triton.ensemble import Ensemble
from app.triton.pool import Batch, Pool
from app.triton.query import Query

Answered = TypeVar("Answered")
Answered_co = TypeVar("Answered_co", covariant=True)


class Caller(Protocol):
    """Whoever waits for the answer."""

    def watched(self) -> AbstractContextManager[None]:
        """Cancels what runs inside when the caller leaves, and then raises `ClientClosed`."""
        ...


class Question(Protocol[Answered_co]):
    """A request, parsed: texts for a task, or tensors for a model of any."""

    @property
    def model(self) -> str: ...

    @property
    def task(self) -> str | None:
        """The task that the model must do; None where any will do."""
        ...

    @property
    def version(self) -> str:
        """The version of the ensemble; empty where any will do."""
        ...

    @property
    def timeout_ms(self) -> int | None: ...

    def admit(self, caps: Caps) -> tuple[int, int]:
        """How many inputs and characters it costs; raises `InvalidInput` where that is outside the caps."""
        ...

    def addressed(self, route: Route, ensemble: Ensemble) -> "Callable[[Passage], Awaitable[Answered_co]]":
        """Made to fit this ensemble, and ready to be asked; raises `InvalidInput` where it does not fit."""
        ...


@dataclass(frozen=True, slots=True)
class Gateway:
    table: Callable[[], RouteTable]
    limiter: Limiter
    bulkheads: Callable[[Ensemble, Route], Bulkhead]
    triton: Pool
    tracing: Tracing
    parallelism: int

    def refuse_known(self, tenant: Tenant, most_characters: int, exchange: Exchange) -> None:
        """Raises the refusal that awaits every request of this tenant now; what it asks for need not be known yet."""
        started = monotonic()
        verdict = self.limiter.recall(tenant, most_characters)
        if verdict is not None and verdict.refusal:
            _note(verdict, exchange, monotonic() - started)
            # It may be told to others, and must not take the frames of each of them along.
            raise verdict.refusal.with_traceback(None)

    async def infer(self, question: Question[Answered], tenant: Tenant, caller: Caller, exchange: Exchange) -> Answered:
        exchange.parse = exchange.elapsed() - exchange.auth
        serving = self.table().resolve(question.model, question.task, tenant)
        route = serving.route
        exchange.model = route.name
        exchange.inputs, exchange.characters = question.admit(route.caps)
        ensemble = serving.choose(question.version)
        exchange.ensemble = ensemble.name
        ask = question.addressed(route, ensemble)
        deadline = Deadline.after(route.seconds(question.timeout_ms), since=exchange.started)

        verdict = await self._admit(tenant, route, deadline, exchange)
        executed = False
        admitted = monotonic()
        try:
            with caller.watched():
                async with self.bulkheads(ensemble, route).berth(tenant.priority, deadline):
                    executed = True
                    exchange.queue = monotonic() - admitted
                    passage = Passage(self.triton, self.tracing, self.parallelism, deadline, tenant.priority, exchange)
                    answered = await ask(passage)
                    exchange.answered = monotonic()
                    return answered
        except Refusal as refusal:
            if not executed:
                exchange.queue = monotonic() - admitted
            executed = executed and refusal.executed and not isinstance(refusal, Unready)
            raise
        finally:
            self.limiter.settle(verdict, executed=executed)

    async def _admit(self, tenant: Tenant, route: Route, deadline: Deadline, exchange: Exchange) -> Verdict:
        started = monotonic()
        with self.tracing.step(exchange.span, "admission"):
            try:
                verdict = await self.limiter.spend(tenant, route.name, exchange.characters, deadline.remaining())
            except Unavailable as refusal:
                exchange.degraded, exchange.limiter = True, refusal.code
                raise
        _note(verdict, exchange, monotonic() - started)
        if verdict.refusal:
            raise verdict.refusal
        return verdict


@dataclass(frozen=True, slots=True)
class Passage:
    """What an admitted request is put through to Triton by, until its deadline."""

    triton: Pool
    tracing: Tracing
    parallelism: int
    """How many parts of the request may be asked at once."""
    deadline: Deadline
    priority: int
    exchange: Exchange

    async def ask(self, query: Query[Answered]) -> tuple[str, Answered]:
        """The version of the model that answered, and the verified answer."""
        exchange = self.exchange
        exchange.chunks += 1
        budget = max(1, int(self.deadline.remaining() * 1_000_000))
        request = query.request(exchange.request_id, budget, self.priority)
        return await self.triton.infer(Batch(query, request, self._step(query, request)), self.deadline)

    def _step(self, query: Query[object], request: bytes) -> Callable[[], AbstractContextManager[Span | None]]:
        """Opens the span of one call, of which there may be two."""
        exchange = self.exchange
        if exchange.span is None or not exchange.span.sampled:
            return untraced
        attributes: dict[str, Value] = {
            "triton.model_name": query.ensemble.name,
            "conch.batch": query.size,
            "conch.chunk": exchange.chunks,
            "conch.request_bytes": len(request),
        }
        return partial(self.tracing.step, exchange.span, "triton.infer", Kind.CLIENT, attributes)


def _note(verdict: Verdict, exchange: Exchange, seconds: float) -> None:
    exchange.admission = seconds
    exchange.limit_headers = verdict.headers
    exchange.degraded, exchange.remembered, exchange.shadowed = verdict.degraded, verdict.remembered, verdict.shadowed
    exchange.limiter = verdict.refusal.code if verdict.refusal else "admitted"
