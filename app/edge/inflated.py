"""A compressed body, as its bytes are asked for: a bomb goes off no further than its reader's cap."""

import asyncio
import zlib

from starlette.types import Message, Receive, Scope

from app.errors import Malformed, UnsupportedMedia

_GZIP = 31  # zlib's window for a gzip header
_PIECE_BYTES = 256 * 1024
_TAKEN = (b"gzip", b"x-gzip")


def inflated(coding: bytes, scope: Scope, receive: Receive) -> Receive:
    """`receive` without the coding, and `scope` without the fields that tell of it. Raises `UnsupportedMedia`."""
    if coding.lower() not in _TAKEN:
        if coding.lower() == b"identity":
            return receive
        raise UnsupportedMedia("a body may be compressed by gzip alone", headers=(("accept-encoding", "gzip"),))
    scope["headers"] = [field for field in scope["headers"] if field[0] not in (b"content-encoding", b"content-length")]
    return _Inflated(receive)


class _Inflated:
    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._zlib = zlib.decompressobj(_GZIP)
        self._held = b""
        self._ends = False

    async def __call__(self) -> Message:
        if not self._held:
            message = await self._receive()
            if self._ends or message["type"] != "http.request":
                return message
            self._held, self._ends = message.get("body", b""), not message.get("more_body")
        else:
            await asyncio.sleep(0)  # others have waited for the piece before this one
        piece = self._piece()
        return {"type": "http.request", "body": piece, "more_body": bool(self._held or not self._ends)}

    def _piece(self) -> bytes:
        was_over = self._zlib.eof
        try:
            piece = b"" if was_over else self._zlib.decompress(self._held, _PIECE_BYTES)
        except zlib.error:
            raise Malformed("the body is not gzip") from None
        if self._zlib.unused_data or (was_over and self._held):
            raise Malformed("something follows the gzip of the body")
        self._held = self._zlib.unconsumed_tail  # never empty while zlib holds back more, since a checksum comes last
        if self._ends and not (self._held or self._zlib.eof):
            raise Malformed("the gzip of the body ends early")
        return piece
