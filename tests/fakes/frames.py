"""A peer that speaks HTTP/2 frame by frame, for what no gRPC server can be made to do."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY = 0x0, 0x1, 0x3, 0x4, 0x6, 0x7
END_STREAM, END_HEADERS, ACK = 0x1, 0x4, 0x1
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

Script = Callable[["Line", int], Awaitable[None]]
"""What is done about a call, by the number of its stream."""


class Line:
    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self.writer = writer

    def send(self, kind: int, flags: int, stream: int, payload: bytes = b"") -> None:
        self.writer.write(len(payload).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + payload)

    def headers(self, stream: int, *fields: tuple[bytes, bytes], status: bytes = b"200", end: bool = False) -> None:
        block = b"".join(_literal(name, value) for name, value in ((b":status", status), *fields))
        self.send(HEADERS, END_HEADERS | (END_STREAM if end else 0), stream, block)

    def trailers(self, stream: int, *fields: tuple[bytes, bytes]) -> None:
        self.send(HEADERS, END_HEADERS | END_STREAM, stream, b"".join(_literal(name, value) for name, value in fields))

    def goaway(self, last_stream: int, code: int = 0, text: bytes = b"") -> None:
        self.send(GOAWAY, 0, 0, last_stream.to_bytes(4, "big") + code.to_bytes(4, "big") + text)

    def reset(self, stream: int, code: int) -> None:
        self.send(RST_STREAM, 0, stream, code.to_bytes(4, "big"))

    def cut(self) -> None:
        self.writer.transport.abort()


GRPC = (b"content-type", b"application/grpc")


def message(payload: bytes) -> bytes:
    return b"\0" + len(payload).to_bytes(4, "big") + payload


@asynccontextmanager
async def scripted(script: Script) -> AsyncIterator[str]:
    """The address of a peer that does as the script says with every call."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line = Line(writer)
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            assert await reader.readexactly(len(_PREFACE)) == _PREFACE
            line.send(SETTINGS, 0, 0)
            while True:
                head = await reader.readexactly(9)
                payload = await reader.readexactly(int.from_bytes(head[:3], "big"))
                kind, flags, stream = head[3], head[4], int.from_bytes(head[5:], "big")
                if kind in (SETTINGS, PING) and not flags & ACK:
                    line.send(kind, ACK, 0, payload if kind == PING else b"")
                elif flags & END_STREAM and kind in (HEADERS, DATA):
                    await script(line, stream)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()


def _literal(name: bytes, value: bytes) -> bytes:
    """HPACK, without indexing and without Huffman: RFC 7541, 6.2.2."""
    return b"\0" + bytes((len(name),)) + name + bytes((len(value),)) + value
