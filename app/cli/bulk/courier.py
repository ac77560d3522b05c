"""Takes posts to the gateway, as many times as it takes, and brings back an answer for each line."""

import asyncio
import random
import re
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from time import monotonic

import httpx
from pydantic import BaseModel, NonNegativeInt

_PATH = "/v1/bulk"
_BACKOFF, _LONGEST_BACKOFF = 0.5, 15.0
_AGAIN = (408, 500, 502, 504)
"""Statuses after which the same may be tried once more."""
_NDJSON = "application/x-ndjson"
_LINE = re.compile(rb'\{"index":[0-9]+,".*\}')


class Broken(Exception):
    """Nothing more can be got now; the same command goes on later. `delivery` is what came before."""

    delivery: "Delivery | None" = None


class _Flaw(BaseModel):
    code: str
    detail: str


class _Problem(BaseModel):
    """Problem details, as far as they are looked at."""

    status: int = 0
    code: str = ""
    detail: str = "no problem details"
    errors: list[_Flaw] = []
    retry_after: NonNegativeInt | None = None

    @classmethod
    def of(cls, response: httpx.Response) -> "_Problem":
        try:
            return cls.model_validate_json(response.content)
        except ValueError:
            return cls()

    def __str__(self) -> str:
        return " ".join([self.detail, *(flaw.detail for flaw in self.errors[:1])])


class _Line(BaseModel):
    error: _Problem | None = None


@dataclass(frozen=True, slots=True)
class Post:
    """`first` is the number of its first line in the file, `position` how far the file was read for it."""

    first: int
    lines: Sequence[bytes]
    position: int = 0


@dataclass(slots=True)
class Delivery:
    """The answers of a post so far, and how each of them came out: `ok`, or the error's code."""

    post: Post
    answers: dict[int, bytes] = field(default_factory=dict)
    outcomes: dict[int, str] = field(default_factory=dict)
    tries: Counter[int] = field(default_factory=Counter)
    """Of lines that may be tried once more."""

    def left(self) -> list[int]:
        return [at for at in range(len(self.post.lines)) if at not in self.answers]

    def keep(self, at: int, line: bytes, outcome: str) -> None:
        """The line's number becomes that in the file."""
        self.answers[at] = b'{"index":%d%b\n' % (self.post.first + at, line[line.index(b",") :])
        self.outcomes[at] = outcome

    def beginning(self) -> tuple[list[bytes], Counter[str]]:
        """The answers up to the first that is missing, and how they came out."""
        end = next((at for at in range(len(self.post.lines)) if at not in self.answers), len(self.post.lines))
        return [self.answers[at] for at in range(end)], Counter(self.outcomes[at] for at in range(end))


class Courier:
    """`patience`: for how many seconds a post may get no answer at all. A pause that is asked for holds for all posts."""

    def __init__(self, client: httpx.AsyncClient, task: str, query: Sequence[tuple[str, str]], patience: float) -> None:
        self._client = client
        self._url = f"{_PATH}/{task}"
        self._query = httpx.QueryParams(list(query))
        self._patience = patience
        self._again_at = 0.0

    async def deliver(self, post: Post) -> Delivery:
        """Raises `Broken`."""
        delivery = Delivery(post)
        try:
            await self._persist(delivery)
        except Broken as broken:
            broken.delivery = delivery
            raise
        return delivery

    async def _persist(self, delivery: Delivery) -> None:
        failures, heard, answered = 0, monotonic(), 0
        while left := delivery.left():
            await asyncio.sleep(max(0.0, self._again_at - monotonic()))
            trouble = await self._try(delivery, left)
            if len(delivery.answers) > answered:
                failures, heard, answered = 0, monotonic(), len(delivery.answers)
                continue
            failures += 1
            if monotonic() - heard > self._patience:
                raise Broken(f"no answer for {self._patience:g} seconds; the last trouble was: {trouble}")
            await asyncio.sleep(min(_LONGEST_BACKOFF, _BACKOFF * 2 ** min(failures, 10)) * random.uniform(0.5, 1))  # noqa: S311

    async def _try(self, delivery: Delivery, left: list[int]) -> str:
        """Ask for what is left; what went wrong on the way, if anything did."""
        body = b"".join(delivery.post.lines[at] + b"\n" for at in left)
        stream = self._client.stream("POST", self._url, params=self._query, content=body, headers={"content-type": _NDJSON})
        try:
            async with stream as response:
                if response.status_code != 200:
                    return await self._refused(response, delivery, left)
                if not response.headers.get("content-type", "").startswith(_NDJSON):
                    raise ValueError
                waits = [self._settle(delivery, left[at], line) async for at, line in _numbered(response)]
        except httpx.TransportError as error:
            return type(error).__name__
        except (ValueError, IndexError, httpx.DecodingError):
            raise Broken("what answers there is no Conch") from None
        self._pause(max(waits, default=0), "The tenant's limits or the model keep lines waiting.")
        return "lines were left without a final answer"

    def _settle(self, delivery: Delivery, at: int, line: bytes) -> int:
        """Keep the line's answer, if it is final; or else the seconds after which it may be asked for again."""
        if not _LINE.fullmatch(line):
            raise ValueError
        error = _Line.model_validate_json(line).error if b'"error":' in line else None
        if error is None:
            delivery.keep(at, line, "ok")
            return 0
        if error.retry_after is not None:
            return error.retry_after
        delivery.tries[at] += 1
        if error.status in _AGAIN and delivery.tries[at] == 1:
            return 1
        delivery.keep(at, line, error.code)
        return 0

    async def _refused(self, response: httpx.Response, delivery: Delivery, left: list[int]) -> str:
        await response.aread()
        problem = _Problem.of(response)
        said = f"{response.status_code}: {problem}"
        if (wait := response.headers.get("retry-after", "")).isdigit():
            self._pause(int(wait), said)
        elif problem.code == "too_large" or any(flaw.code == "too_many" for flaw in problem.errors):
            await self._halve(delivery, left, problem)
        elif problem.code == "not_found":
            raise Broken(f"there is no {self._url}: not every task has bulk posts")
        elif response.status_code not in _AGAIN:
            raise Broken(said)
        return said

    async def _halve(self, delivery: Delivery, left: list[int], problem: _Problem) -> None:
        """The gateway takes smaller posts than this one."""
        if len(left) == 1:
            error = problem.model_dump_json(include={"status", "code", "detail"}).encode()
            delivery.keep(left[0], b'{"index":0,"error":%b}' % error, problem.code)
            return
        for half in (left[: len(left) // 2], left[len(left) // 2 :]):
            part = await self.deliver(Post(0, [delivery.post.lines[at] for at in half]))
            for number, at in enumerate(half):
                delivery.keep(at, part.answers[number].rstrip(b"\n"), part.outcomes[number])

    def _pause(self, seconds: int, said: str) -> None:
        if seconds > self._patience:
            raise Broken(f"{said} The next try makes sense in {seconds} seconds.")
        self._again_at = max(self._again_at, monotonic() + seconds)


async def _numbered(response: httpx.Response) -> AsyncIterator[tuple[int, bytes]]:
    """The whole lines. They end with a line feed, and with nothing else that a text may hold."""
    number, rest = 0, b""
    async for piece in response.aiter_bytes():
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            yield number, line
            number += 1
