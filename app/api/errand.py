"""One batch after the other of a bulk post, with patience: what may be waited for is, and what fails is one line's own."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from math import ceil
from time import monotonic

from app.api.answers import Json, version
from app.api.lines import Line, answered, read_line, refused
from app.calls.texts import Answer, Call
from app.deadline import Deadline
from app.errors import (
    BadUpstreamResponse,
    DeadlineExceeded,
    InvalidInput,
    ModelUnavailable,
    OverLimit,
    Overloaded,
    QuotaExhausted,
    Refusal,
    TooLarge,
    TooManyInFlight,
    Unavailable,
    Unready,
    UpstreamError,
)
from app.gateway import Gateway
from app.routing.route import Caps
from app.telemetry.exchange import Exchange
from app.tenancy.tenant import Tenant

Write = Callable[[Answer, Sequence[str]], Sequence[Json]]
"""The results of the texts, as the task writes them."""

_TRIES = 3
"""Of a model that can't be served: a text may be what it dies of."""
_PARTS = 8
"""Two steps lead from 64 lines to the one at fault, so that no endpoint fails so often in a row that it looks ill."""
_MOST_PARTINGS = 64
"""Of one post: a model that fails on everything must not be asked twice for all of it."""


class _Elsewhere:
    """The caller of the post is watched once, not by each batch."""

    @contextmanager
    def watched(self) -> Iterator[None]:
        yield


@dataclass(slots=True)
class Errand:
    """Asks for a batch as for a request of its own, which it is to the limits, too. `call` is the pattern of each."""

    gateway: Gateway
    tenant: Tenant
    call: Call
    write: Write
    caps: Caps
    turns: asyncio.Lock
    deadline: Deadline
    exchange: Exchange
    _partings: int = 0
    _again_at: float = 0.0
    _ended: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def read(self, index: int, raw: bytes) -> Line | bytes:
        line = await read_line(index, raw, self.caps, self.turns)
        return line if line.refusal is None else self._refused(line, line.refusal)

    async def __call__(self, batch: Sequence[Line]) -> Sequence[bytes]:
        """The written answers. A batch that fails for what may be one line's fault is parted until that line is alone."""
        try:
            return await self._patiently(batch)
        except Refusal as refusal:
            if len(batch) == 1 or not self._may_part(refusal):
                return [self._refused(line, refusal) for line in batch]
        size = ceil(len(batch) / _PARTS)
        return [written for at in range(0, len(batch), size) for written in await self(batch[at : at + size])]

    async def _patiently(self, batch: Sequence[Line]) -> list[bytes]:
        tries = 0
        while True:
            await asyncio.sleep(max(0.0, self._again_at - monotonic()))
            try:
                return await self._infer(batch)
            except (OverLimit, Unready) as refusal:
                tries += isinstance(refusal, (Unavailable, ModelUnavailable))
                if tries == _TRIES:
                    raise
                await self._wait(refusal)

    async def _infer(self, batch: Sequence[Line]) -> list[bytes]:
        left = self.deadline.remaining()
        if left <= 0:
            raise DeadlineExceeded("the time given was used up before the model was asked for this line")
        texts = [line.text for line in batch]
        part = Exchange(self.exchange.request_id, span=self.exchange.span)
        try:
            call = replace(self.call, texts=texts, timeout_ms=max(1, int(left * 1000)))
            answer = await self.gateway.infer(call, self.tenant, _Elsewhere(), part)
        finally:
            self._note(part)
        self._count(part)
        async with self._ended:
            self._ended.notify()
        return self._written(batch, answer)

    def _written(self, batch: Sequence[Line], answer: Answer) -> list[bytes]:
        sound = [at for at in range(len(batch)) if at not in answer.flaws]
        if len(sound) < len(batch):
            answer = replace(answer, rows={role: [rows[at] for at in sound] for role, rows in answer.rows.items()})
        made_by = version(answer)
        results = dict(zip(sound, self.write(answer, [batch[at].text for at in sound]), strict=True)) if sound else {}
        return [
            self._answered(line, made_by, results[at])
            if at in results
            else self._refused(line, InvalidInput("this line can't be answered as asked", flaws=(answer.flaws[at],)))
            for at, line in enumerate(batch)
        ]

    async def _wait(self, refusal: Refusal) -> None:
        """Until the same may be asked again; raises where that is too late."""
        wait = refusal.retry_after or 1
        if wait >= self.deadline.remaining():
            if isinstance(refusal, (Unready, QuotaExhausted, Overloaded)):
                raise refusal
            raise DeadlineExceeded("the tenant's limit lets this line pass only after the time given", retry_after=wait)
        if isinstance(refusal, (TooManyInFlight, Overloaded)):
            # Most likely it is our own batches that this one has to wait for.
            async with self._ended:
                with suppress(TimeoutError):
                    async with asyncio.timeout(wait):
                        await self._ended.wait()
        else:
            self._again_at = max(self._again_at, monotonic() + wait)

    def _may_part(self, refusal: Refusal) -> bool:
        if not isinstance(refusal, (InvalidInput, TooLarge, UpstreamError, BadUpstreamResponse, ModelUnavailable)):
            return False
        self._partings += 1
        return self._partings <= _MOST_PARTINGS

    def _answered(self, line: Line, made_by: str, result: Json) -> bytes:
        self._tell("ok")
        return answered(line, made_by, result)

    def _refused(self, line: Line, refusal: Refusal) -> bytes:
        self._tell(refusal.code)
        return refused(line, refusal)

    def _tell(self, outcome: str) -> None:
        outcomes = self.exchange.outcomes
        outcomes[outcome] = outcomes.get(outcome, 0) + 1

    def _count(self, part: Exchange) -> None:
        whole = self.exchange
        whole.inputs += part.inputs
        whole.characters += part.characters
        whole.tokens += part.tokens
        whole.triton = max(whole.triton, part.triton)

    def _note(self, part: Exchange) -> None:
        whole = self.exchange
        whole.model, whole.ensemble = part.model, part.ensemble
        whole.chunks += part.chunks
        whole.limiter = part.limiter
        whole.limit_headers = part.limit_headers or whole.limit_headers
        whole.degraded, whole.remembered, whole.shadowed = part.degraded, part.remembered, part.shadowed
        whole.admission = max(whole.admission, part.admission)
        whole.queue = max(whole.queue, part.queue)
