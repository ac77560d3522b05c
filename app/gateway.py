"""The path of one request, told once and in order."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from time import monotonic
from typing import Protocol

from opentelemetry.trace import Span, SpanKind

from app.admission.bulkhead import Bulkhead
from app.admission.headers import rate_limit_headers
from app.admission.limiter import Limiter, Verdict
from app.deadline import Deadline
from app.errors import Flaw, InvalidInput, Refusal, Unready
from app.routing.route import MAX_FLAWS, Route, RouteTable
from app.routing.task import features
from app.telemetry.exchange import Exchange
from app.telemetry.tracing import Tracing, propagated
from app.tenancy.tenant import Tenant
from app.triton.ensemble import Ensemble
from app.triton.pool import Batch, Pool
from app.triton.tensor import Rows


class Caller(Protocol):
    """Whoever waits for the answer."""

    def watched(self) -> AbstractContextManager[None]:
        """Cancels what runs inside when the caller leaves, and then raises `ClientClosed`."""
        ...


@dataclass(frozen=True, slots=True)
class Call:
    """A request, parsed. `field` is the JSON pointer to its text, or to its list of texts where it is `listed`."""

    task: str
    model: str
    texts: Sequence[str]
    field: str = "/inputs"
    listed: bool = True
    features: Sequence[str] = ()
    """The heads that are asked for; all of them where it is empty."""
    dimensions: int | None = None
    """The length that vectors must have."""
    truncate: bool = True
    timeout_ms: int | None = None

    def pointer(self, at: int) -> str:
        return f"{self.field}/{at}" if self.listed else self.field


@dataclass(frozen=True, slots=True)
class Answer:
    """The verified rows of each role, one for each text, in the order of the texts."""

    route: Route
    ensemble: Ensemble
    version: str
    rows: dict[str, Rows]

    def column(self, role: str) -> list[int | None]:
        """The values of a role that has one number for each text; None for each where the ensemble does not publish it."""
        rows = self.rows.get(role)
        size = len(next(iter(self.rows.values())))
        return [None] * size if rows is None else [row[0] for row in rows]


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
            raise verdict.refusal

    async def infer(self, call: Call, tenant: Tenant, caller: Caller, exchange: Exchange) -> Answer:
        serving = self.table().resolve(call.model, call.task, tenant)
        route = serving.route
        exchange.model = route.name
        exchange.inputs = len(call.texts)
        exchange.characters = route.caps.admit(call.texts, call.field, call.pointer)
        ensemble = serving.choose()
        exchange.ensemble = ensemble.name
        roles = _roles(call, ensemble)
        deadline = Deadline.after(route.seconds(call.timeout_ms), since=exchange.started)

        verdict = await self._admit(tenant, route, deadline, exchange)
        executed = False
        try:
            with caller.watched():
                async with self.bulkheads(ensemble, route).berth(tenant.priority, deadline):
                    executed = True
                    answer = await self._run(call, route, ensemble, roles, deadline, tenant.priority, exchange)
        except Refusal as refusal:
            executed = executed and refusal.executed and not isinstance(refusal, Unready)
            raise
        finally:
            self.limiter.settle(verdict, executed=executed)
        _refuse_items(call, answer)
        return answer

    async def _admit(self, tenant: Tenant, route: Route, deadline: Deadline, exchange: Exchange) -> Verdict:
        started = monotonic()
        with self.tracing.step(exchange.span, "admission"):
            verdict = await self.limiter.spend(tenant, route.name, exchange.characters, deadline.remaining())
        _note(verdict, exchange, monotonic() - started)
        if verdict.refusal:
            raise verdict.refusal
        return verdict

    async def _run(
        self,
        call: Call,
        route: Route,
        ensemble: Ensemble,
        roles: tuple[str, ...],
        deadline: Deadline,
        priority: int,
        exchange: Exchange,
    ) -> Answer:
        """Ask Triton, in as many parts as the ensemble's batch size makes of the texts."""
        started = monotonic()
        texts = [text.encode() for text in call.texts]
        ask = _Question(self.triton, self.tracing, ensemble, roles, deadline, priority, exchange)
        if len(texts) <= ensemble.max_batch:
            version, rows = await ask(texts)
        else:
            version, rows = await self._split(ask, texts, ensemble.max_batch)
        exchange.triton = monotonic() - started
        answer = Answer(route, ensemble, version, rows)
        exchange.tokens = sum(count or 0 for count in answer.column("tokens"))
        return answer

    async def _split(self, ask: "_Question", texts: list[bytes], size: int) -> "tuple[str, dict[str, Rows]]":
        """Texts of like length travel together, since each part is padded to its longest."""
        order = sorted(range(len(texts)), key=lambda at: len(texts[at]))
        parts = [order[at : at + size] for at in range(0, len(order), size)]
        turns = asyncio.Semaphore(self.parallelism)

        async def run(part: list[int]) -> tuple[str, dict[str, Rows]]:
            async with turns:
                return await ask([texts[at] for at in part])

        tasks = [asyncio.ensure_future(run(part)) for part in parts]
        try:
            answers = await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
        return answers[0][0], {role: _merged(role, parts, answers) for role in answers[0][1]}


@dataclass(frozen=True, slots=True)
class _Question:
    """One part of a request, asked of Triton."""

    triton: Pool
    tracing: Tracing
    ensemble: Ensemble
    roles: tuple[str, ...]
    deadline: Deadline
    priority: int
    exchange: Exchange

    async def __call__(self, texts: list[bytes]) -> tuple[str, dict[str, Rows]]:
        exchange, ensemble = self.exchange, self.ensemble
        exchange.chunks += 1
        budget = max(1, int(self.deadline.remaining() * 1_000_000))
        request = ensemble.request(texts, self.roles, exchange.request_id, budget, self.priority)
        with self.tracing.step(exchange.span, "triton.infer", SpanKind.CLIENT) as span:
            _describe(span, ensemble, len(texts), len(request))
            return await self.triton.infer(Batch(ensemble, request, self.roles, len(texts), propagated(span)), self.deadline)


def _note(verdict: Verdict, exchange: Exchange, seconds: float) -> None:
    exchange.admission = seconds
    exchange.limit_headers = rate_limit_headers(verdict.standings)
    exchange.degraded, exchange.remembered, exchange.shadowed = verdict.degraded, verdict.remembered, verdict.shadowed
    exchange.limiter = verdict.refusal.code if verdict.refusal else "admitted"


def _describe(span: Span | None, ensemble: Ensemble, batch: int, size: int) -> None:
    if span is not None:
        span.set_attributes({"triton.model_name": ensemble.name, "conch.batch": batch, "conch.request_bytes": size})


def _roles(call: Call, ensemble: Ensemble) -> tuple[str, ...]:
    """The outputs to ask for; raises `InvalidInput` where one that was asked for can't be had."""
    if not call.truncate and "truncated" not in ensemble.outputs:
        flaw = Flaw("/truncate", "not_supported", "this model does not say what it cuts, so that it must be allowed to")
        raise InvalidInput("this model can't refuse long texts by itself", flaws=(flaw,))
    if call.dimensions is not None and (call.dimensions,) != ensemble.outputs["embedding"].dims:
        flaw = Flaw("/dimensions", "not_supported", f"only {ensemble.outputs['embedding'].dims[0]}")
        raise InvalidInput("this model's vectors have one length", flaws=(flaw,))
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


def _refuse_items(call: Call, answer: Answer) -> None:
    """One bad item fails the whole call, and is pointed to."""
    flaws: list[Flaw] = []
    for at, error in enumerate(answer.rows.get("error", ())):
        if error:
            flaws.append(Flaw(call.pointer(at), "refused_by_model", "the model can't read this text"))
    if not call.truncate:
        for at, truncated in enumerate(answer.column("truncated")):
            if truncated:
                flaws.append(
                    Flaw(call.pointer(at), "too_long_for_model", "the model would cut this text, and truncate is false")
                )
    if flaws:
        raise InvalidInput("an input can't be answered as asked", flaws=tuple(flaws[:MAX_FLAWS]))


def _merged(role: str, parts: list[list[int]], answers: "Sequence[tuple[str, dict[str, Rows]]]") -> Rows:
    merged: Rows = [None] * sum(map(len, parts))
    for part, (_, rows) in zip(parts, answers, strict=True):
        for at, row in zip(part, rows[role], strict=True):
            merged[at] = row
    return merged
