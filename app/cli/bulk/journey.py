"""From the file to the output: posts are cut, taken to the gateway several at once, and their answers added in order."""

import asyncio
import sys
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count, islice
from typing import Any

import click
import httpx

from app.cli.bulk.courier import Broken, Courier, Delivery, Post
from app.cli.bulk.journal import Journal
from app.cli.bulk.source import Source

_MARGIN = 60.0
"""Seconds that a post may be silent for beyond its own time."""


@dataclass(frozen=True, slots=True)
class Order:
    """What is asked of whom, and how: at most `posts` at once, of so many `lines` and bytes (`size`) each."""

    url: str
    key: str = field(repr=False)
    model: str
    options: Sequence[tuple[str, str]]
    posts: int
    lines: int
    size: int
    timeout: int
    patience: int


class Journey:
    def __init__(self, source: Source, journal: Journal, order: Order) -> None:
        self._source = source
        self._journal = journal
        self._order = order

    async def run(self) -> None:
        """Raises `Broken` and `SourceUnusable`."""
        if self._journal.is_done:
            return
        order = self._order
        timeout = httpx.Timeout(_MARGIN, read=order.timeout + _MARGIN, pool=None)
        headers = {"authorization": f"Bearer {order.key}", "user-agent": "conch-bulk"}
        limits = httpx.Limits(max_connections=order.posts)
        async with httpx.AsyncClient(base_url=order.url, headers=headers, timeout=timeout, limits=limits) as client:
            task = await self._task(client)
            query = [("model", order.model), ("timeout_ms", str(order.timeout * 1000)), *order.options]
            await self._carry(Courier(client, task, query, order.patience))
        self._journal.finish()

    async def _task(self, client: httpx.AsyncClient) -> str:
        """What the model does; it is also the first try whether there is a gateway, and whether it knows the key."""
        url = self._order.url
        try:
            response = await client.get(f"/v1/models/{self._order.model}")
            answer = response.json()
            if response.status_code != 200:
                raise Broken(f"{response.status_code}: {answer['detail']}")
            return str(answer["task"])
        except httpx.TransportError as error:
            raise Broken(f"{url} can't be reached: {type(error).__name__}") from None
        except (ValueError, KeyError, TypeError, httpx.InvalidURL, httpx.DecodingError):
            raise Broken(f"what answers at {url} is no Conch") from None

    async def _carry(self, courier: Courier) -> None:
        pending: deque[asyncio.Task[Delivery]] = deque()
        with self._bar() as bar:
            try:
                for post in self._posts():
                    pending.append(asyncio.create_task(courier.deliver(post)))
                    await asyncio.sleep(0)
                    if len(pending) == self._order.posts:
                        await self._land(pending.popleft(), bar)
                while pending:
                    await self._land(pending.popleft(), bar)
            finally:
                for task in pending:
                    task.cancel()
                await asyncio.gather(*pending, return_exceptions=True)

    async def _land(self, task: "asyncio.Task[Delivery]", bar: Any) -> None:
        try:
            delivery = await task
        except Broken as broken:
            if broken.delivery is not None:
                self._journal.add(*broken.delivery.beginning())
            raise
        self._journal.add(*delivery.beginning())
        steps = delivery.post.position - bar.pos if self._source.size else len(delivery.post.lines)
        bar.update(max(0, steps), self._journal.lines)

    def _posts(self) -> Iterator[Post]:
        """What the journal has not got yet. Where posts are cut depends on nothing but the file and where it begins."""
        first = self._journal.lines
        lines: list[bytes] = []
        size = position = 0
        for line, _ in islice(self._source.records(), first, None):
            if lines and (len(lines) == self._order.lines or size + len(line) >= self._order.size):
                yield Post(first, lines, position)
                first += len(lines)
                lines, size = [], 0
            lines.append(line)
            size += len(line) + 1
            position = self._source.position
        if lines:
            yield Post(first, lines, position)

    def _bar(self) -> Any:
        """Of the file's bytes; of what has no size, it only moves."""
        known: Any = {"length": self._source.size} if self._source.size else {"iterable": count()}
        return click.progressbar(**known, file=sys.stderr, item_show_func=self._progress)

    def _progress(self, lines: int | None) -> str | None:
        if lines is None:
            return None
        failed = lines - self._journal.outcomes["ok"]
        return f"{lines} lines{f', {failed} errors' if failed else ''}"
