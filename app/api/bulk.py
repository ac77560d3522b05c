"""Many texts in one post: NDJSON in, NDJSON out, each line with an answer or an error of its own."""

import asyncio
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from fastapi import APIRouter, Request, Response
from pydantic import ValidationError
from starlette.types import Receive, Scope, Send

from app.api import answers
from app.api.body import gathered, outside, timeout_of
from app.api.bulk_schemas import NDJSON, OPTIONS, bulk_documented
from app.api.convoy import Cargo, Convoy
from app.api.errand import Errand
from app.api.lines import Lines
from app.api.presence import AsgiCaller
from app.calls.texts import Answer, Call
from app.deadline import Deadline
from app.errors import DeadlineExceeded, Malformed, Overloaded, UnsupportedMedia

router = APIRouter(tags=["bulk"])

Endpoint = Callable[[Request], Awaitable[Response]]

_NDJSON = re.compile(r'application/(x-)?(ndjson|jsonl|jsonlines)\s*(;\s*charset="?utf-8"?\s*)?', re.IGNORECASE)
_MOST_LINES = 256
"""Of a batch, so that its answer is written in a moment."""
_GRACE = 5.0
"""The most seconds after the deadline in which the rest may still be read."""


@dataclass(slots=True)
class Moorings:
    """Places for posts, since each holds its body in memory. One tenant gets half of them at most."""

    places: int
    _held: Counter[str] = field(default_factory=Counter)

    @contextmanager
    def moored(self, tenant: str) -> Iterator[None]:
        if self._held.total() >= self.places or 2 * self._held[tenant] >= self.places > 1:
            raise Overloaded("all places for bulk posts are taken", retry_after=1)
        self._held[tenant] += 1
        try:
            yield
        finally:
            self._held[tenant] -= 1
            if not self._held[tenant]:
                del self._held[tenant]


@dataclass(frozen=True, slots=True)
class BulkLimits:
    lines: int
    seconds: float
    moorings: Moorings


def _write(task: str, options: Any) -> Callable[[Answer, Sequence[str]], Sequence[answers.Json]]:
    """How the task writes its results."""
    match task:
        case "classify":
            return lambda answer, texts: answers.classified(answer, options.top_k)
        case "entities":
            include = options.include_text
            return lambda answer, texts: answers.entities(answer, texts, options.offsets, include_text=include)
        case "embeddings":
            return lambda answer, texts: answers.embedded(answer, options.encoding_format, options.dimensions)
    return lambda answer, texts: answers.analyzed(answer, options.top_k, options.encoding_format)


class BulkResponse(Response):
    """Reads, asks and writes while it is sent: an answer that is not read asks for no more."""

    media_type = NDJSON

    def __init__(self, request: Request, task: str) -> None:
        super().__init__()
        self._request = request
        self._task = task

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request, state = self._request, self._request.state
        exchange, tenant, limits = state.exchange, state.principal.tenant, state.bulk_limits
        options = _options(request, self._task)
        seconds = min(_seconds(request, options) or limits.seconds, limits.seconds)
        deadline = Deadline.after(seconds, since=exchange.started)
        call = _call(self._task, options)
        serving = state.gateway.table().resolve(call.model, call.task, tenant)
        exchange.model = serving.route.name
        ensemble, caps = serving.choose(), serving.route.caps
        call.addressed(serving.route, ensemble)
        with limits.moorings.moored(tenant.id):
            lines = Lines(await _read(request), limits.lines)
            turns, write = state.body_limits.turns, _write(self._task, options)
            errand = Errand(state.gateway, tenant, call, write, caps, turns, deadline, exchange)
            cargo = Cargo(min(ensemble.max_batch, caps.inputs, _MOST_LINES), caps.characters)
            convoy = Convoy(lines, errand.read, errand, cargo, state.gateway.parallelism)
            with AsgiCaller(receive).watched():
                await _stream(convoy, len(lines), deadline.remaining() + min(seconds, _GRACE), send)


async def _stream(convoy: Convoy, lines: int, seconds: float, send: Send) -> None:
    """The head goes with the first lines, when what is known of the tenant's limits is known."""
    head = [
        (b"content-type", NDJSON.encode()),
        (b"conch-lines", str(lines).encode()),
        (b"cache-control", b"no-store"),
        (b"x-accel-buffering", b"no"),
    ]

    async def deliver(piece: bytes) -> None:
        if head:
            await send({"type": "http.response.start", "status": 200, "headers": head.copy()})
            head.clear()
        await send({"type": "http.response.body", "body": piece, "more_body": True})

    try:
        async with asyncio.timeout(seconds):
            await convoy.run(deliver)
    except TimeoutError:
        raise DeadlineExceeded("the answer was not read in the time given") from None
    await send({"type": "http.response.body"})


async def _read(request: Request) -> bytes | bytearray:
    if not _NDJSON.fullmatch(request.headers.get("content-type", "")):
        raise UnsupportedMedia("the body must be application/x-ndjson, in UTF-8")
    return await gathered(request, request.state.body_limits)


def _options(request: Request, task: str) -> Any:
    """The query, as the task's options."""
    given: dict[str, Any] = {}
    for name, value in request.query_params.multi_items():
        if name == "features":
            given.setdefault(name, []).append(value)
        elif name in given:
            raise Malformed("a parameter of the query is there twice")
        else:
            given[name] = value
    shape = OPTIONS[task]
    try:
        return shape.model_validate(given)
    except ValidationError as error:
        raise outside(error, shape, "query") from None


def _seconds(request: Request, options: Any) -> float | None:
    header = request.headers.get("x-request-timeout-ms")
    timeout = options.timeout_ms or (timeout_of(header) if header is not None else None)
    return None if timeout is None else float(timeout) / 1000


def _call(task: str, options: Any) -> Call:
    return Call(
        task,
        options.model,
        (),
        "/text",
        listed=False,
        features=getattr(options, "features", ()),
        dimensions=getattr(options, "dimensions", None),
        truncate=options.truncate,
        lenient=True,
    )


def _endpoint(task: str) -> Endpoint:
    async def post(request: Request) -> Response:
        return BulkResponse(request, task)

    return post


POSTS = {f"/v1/bulk/{task}": _endpoint(task) for task in OPTIONS}
"""The handlers by path."""

for task in OPTIONS:
    path = f"/v1/bulk/{task}"
    router.add_api_route(
        path, POSTS[path], methods=["POST"], status_code=200, response_class=BulkResponse, **bulk_documented(task)
    )
