"""What is large is worked on in turns, so that it holds the event loop no longer than what is small."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from time import monotonic
from typing import Any

from pydantic_core import to_json
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

AT_ONCE = 16
TURN_SECONDS = 0.002
_PIECE_BYTES = 64 * 1024
_MOST_SENT = 256 * 1024
_PIECE_ITEMS = 512


class Turn:
    """Begins when it is made, and again whenever it was given up."""

    __slots__ = ("_began",)

    def __init__(self) -> None:
        self._began = monotonic()

    async def pause(self) -> None:
        """Lets others go first, where it has lasted for long enough."""
        if monotonic() - self._began > TURN_SECONDS:
            await asyncio.sleep(0)
            self._began = monotonic()


async def let_go(value: Any, turn: Turn) -> None:
    """Empties lists and objects bit by bit: a body that is refused may have 200,000, which are freed at once in 10 ms."""
    while isinstance(value, list | dict) and value:
        await turn.pause()
        if isinstance(value, list):
            last = value[-_PIECE_ITEMS:]
            del value[-_PIECE_ITEMS:]
        else:
            last = [value.popitem()[1] for _ in range(min(len(value), _PIECE_ITEMS))]
        for item in last:
            if type(item) in (list, dict) and item:
                await let_go(item, turn)


async def written(count: int, items: Callable[[int, int], list[Any]]) -> list[bytes]:
    """The items of a JSON list, in pieces that one after the other are its text without its brackets; `items` makes those from
    one place up to another.
    """
    pieces, held, size = [], [], 0
    turn = Turn()
    for start in range(0, count, AT_ONCE):
        held.append(to_json(items(start, min(start + AT_ONCE, count)))[1:-1])
        size += len(held[-1])
        if size >= _PIECE_BYTES:
            pieces.append(b",".join(held) + b",")
            held, size = [], 0
        await turn.pause()
    if held:
        pieces.append(b",".join(held))
    elif pieces:
        pieces[-1] = pieces[-1][:-1]
    return pieces


class Pieces(Response):
    """What is sent as it was written, since to join a large answer would hold the event loop."""

    def __init__(
        self, pieces: Sequence[bytes], media_type: str = "application/json", headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(media_type=media_type, headers={"content-length": str(sum(map(len, pieces))), **(headers or {})})
        self._pieces = pieces

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        for piece in self._pieces:
            for start in range(0, len(piece), _MOST_SENT):
                await send({"type": "http.response.body", "body": piece[start : start + _MOST_SENT], "more_body": True})
                await asyncio.sleep(0)  # or what is under way would leave as one
        await send({"type": "http.response.body", "body": b""})


def in_pieces(pieces: Sequence[bytes], media_type: str, headers: Mapping[str, str] | None = None) -> Response:
    """All in one, where it is small."""
    if sum(map(len, pieces)) <= _PIECE_BYTES:
        return Response(b"".join(pieces), media_type=media_type, headers=headers)
    return Pieces(pieces, media_type, headers)
