"""Answers compressed for who asks: whole ones above a size. What is streamed goes out as it comes."""

import asyncio
import zlib
from functools import lru_cache

from starlette.types import Message, Send

_GZIP = 31  # zlib's window for a gzip header
_LEVEL = 1  # 2.4 times smaller for vectors; level 6 takes four times as long for another 4 %
_INLINE_BYTES = 64 * 1024
_COMPRESSIBLE = (b"application/json", b"text/")  # a problem is small, and not every client undoes it


class Gzip:
    """`send`, for an answer that may be compressed."""

    def __init__(self, send: Send, least: int) -> None:
        self._send = send
        self._least = least
        self._start: Message | None = None

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start" and self._is_worth(dict(message["headers"])):
            self._start = message
            return
        start, self._start = self._start, None
        if start is not None:
            if not message.get("more_body"):
                message = {**message, "body": await _compressed(message.get("body", b""))}
                start["headers"] = _renamed(start["headers"], len(message["body"]))
            await self._send(start)
        await self._send(message)

    def _is_worth(self, headers: dict[bytes, bytes]) -> bool:
        # An etag names these very bytes.
        return (
            int(headers.get(b"content-length", 0)) >= self._least
            and headers.get(b"content-type", b"").startswith(_COMPRESSIBLE)
            and not headers.keys() & {b"content-encoding", b"etag"}
            and b"no-transform" not in headers.get(b"cache-control", b"")
        )


@lru_cache(64)
def asks_for_gzip(accept_encoding: bytes) -> bool:
    """Whether this field takes gzip, and not with less liking than the bytes as they are (RFC 9110, 12.5.3)."""
    likings: dict[str, float] = {}
    for entry in accept_encoding.decode("latin-1").lower().split(","):
        name, _, parameter = entry.partition(";")
        likings[name.strip()] = _liking(parameter.strip())
    gzip = max(likings.get("gzip", likings.get("*", 0.0)), likings.get("x-gzip", 0.0))
    return gzip > 0 and gzip >= likings.get("identity", 0.0)


def _liking(parameter: str) -> float:
    if not parameter:
        return 1.0
    try:
        return min(1.0, max(0.0, float(parameter.removeprefix("q=")))) if parameter.startswith("q=") else 0.0
    except ValueError:
        return 0.0


async def _compressed(body: bytes) -> bytes:
    if len(body) <= _INLINE_BYTES:
        return zlib.compress(body, _LEVEL, _GZIP)
    return await asyncio.to_thread(zlib.compress, body, _LEVEL, _GZIP)  # zlib lets go of the interpreter meanwhile


def _renamed(fields: list[tuple[bytes, bytes]], size: int) -> list[tuple[bytes, bytes]]:
    kept = [field for field in fields if field[0] != b"content-length"]
    return [*kept, (b"content-length", str(size).encode()), (b"content-encoding", b"gzip")]
