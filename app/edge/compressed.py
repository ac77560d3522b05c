"""Answers compressed for who asks: those above a size. What is streamed goes out as it comes, since nobody knows its size."""

import asyncio
import zlib
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from starlette.types import Message, Send
from zstandard import ZstdCompressor

_GZIP = 31  # zlib's window for a gzip header
_LEVEL = 1  # 2.4 times smaller for vectors; level 6 of gzip takes four times as long for another 4 %
_CODINGS: dict[str, Callable[[], Any]] = {
    "zstd": lambda: ZstdCompressor(_LEVEL).compressobj(),  # in a third of gzip's time
    "gzip": lambda: zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP),
}
"""The better first."""
_INLINE_BYTES = 64 * 1024
_COMPRESSIBLE = (b"application/json", b"text/")  # a problem is small, and not every client undoes it


class Compressed:
    """`send`, for an answer that may be compressed by one of the codings."""

    def __init__(self, send: Send, least: int, coding: str) -> None:
        self._send = send
        self._least = least
        self._coding = coding
        self._compressor: Any = None
        self._start: Message | None = None
        self._pieces: list[bytes] = []

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start" and self._is_worth(dict(message["headers"])):
            self._start = message
            self._compressor = _CODINGS[self._coding]()
        elif self._start is None:
            await self._send(message)
        else:
            self._pieces.append(await self._piece(message.get("body", b"")))
            if not message.get("more_body"):
                start, self._start = self._start, None
                body = b"".join([*self._pieces, self._compressor.flush()])
                start["headers"] = _renamed(start["headers"], len(body), self._coding)
                await self._send(start)
                await self._send({**message, "body": body})

    async def _piece(self, body: bytes) -> bytes:
        compress: Callable[[bytes], bytes] = self._compressor.compress
        if len(body) <= _INLINE_BYTES:
            return compress(body)
        return await asyncio.to_thread(compress, body)  # both let go of the interpreter meanwhile

    def _is_worth(self, headers: dict[bytes, bytes]) -> bool:
        # An etag names these very bytes.
        return (
            int(headers.get(b"content-length", 0)) >= self._least
            and headers.get(b"content-type", b"").startswith(_COMPRESSIBLE)
            and not headers.keys() & {b"content-encoding", b"etag"}
            and b"no-transform" not in headers.get(b"cache-control", b"")
        )


@lru_cache(64)
def coding_for(accept_encoding: bytes) -> str:
    """The coding that this field likes best, and not less than the bytes as they are (RFC 9110, 12.5.3); empty if none."""
    likings: dict[str, float] = {}
    for entry in accept_encoding.decode("latin-1").lower().split(","):
        name, _, parameter = entry.partition(";")
        likings[name.strip().removeprefix("x-")] = _liking(parameter.strip())
    least = max(likings.get("identity", 0.0), 0.001)  # the smallest that can be said
    liked = {coding: likings.get(coding, likings.get("*", 0.0)) for coding in _CODINGS}
    best = max(liked, key=liked.__getitem__)
    return best if liked[best] >= least else ""


def _liking(parameter: str) -> float:
    if not parameter:
        return 1.0
    try:
        return min(1.0, max(0.0, float(parameter.removeprefix("q=")))) if parameter.startswith("q=") else 0.0
    except ValueError:
        return 0.0


def _renamed(fields: list[tuple[bytes, bytes]], size: int, coding: str) -> list[tuple[bytes, bytes]]:
    kept = [field for field in fields if field[0] != b"content-length"]
    return [*kept, (b"content-length", str(size).encode()), (b"content-encoding", coding.encode())]
