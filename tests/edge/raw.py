"""HTTP by hand, for what no client would send."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from socket import SO_RCVBUF, SOL_SOCKET, socket

import httpx

from app.local.address import Address


class Line:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    @asynccontextmanager
    async def dripping(self, drop: bytes) -> AsyncIterator[None]:
        """Sends it again and again, as long as the other side listens."""

        async def drip() -> None:
            with suppress(ConnectionError):
                while True:
                    await self.send(drop)
                    await asyncio.sleep(0.05)

        task = asyncio.create_task(drip())
        yield
        task.cancel()

    async def answer(self) -> httpx.Response:
        """The next response, which must be of a known length."""
        async with asyncio.timeout(10):
            head = await self.reader.readuntil(b"\r\n\r\n")
            status, *fields = head[:-4].split(b"\r\n")
            headers = [(name, value.strip()) for name, _, value in (field.partition(b":") for field in fields)]
            response = httpx.Response(int(status.split()[1]), headers=headers)
            body = await self.reader.readexactly(int(response.headers.get("content-length", "0")))
        return httpx.Response(response.status_code, headers=headers, content=body)

    async def answers(self, count: int) -> list[httpx.Response]:
        return [await self.answer() for _ in range(count)]

    async def sipped(self, size: int) -> bytes:
        """At least so many bytes, some 2 MB a second."""
        taken = bytearray()
        while len(taken) < size and (sip := await self.reader.read(2**16)):
            taken += sip
            await asyncio.sleep(0.03)
        return bytes(taken)

    def shut(self) -> None:
        """Reads nothing more."""
        self.writer.transport.pause_reading()  # type: ignore[attr-defined]

    def open(self) -> None:
        self.writer.transport.resume_reading()  # type: ignore[attr-defined]

    async def is_closed(self) -> bool:
        """Waits until the other side closes."""
        async with asyncio.timeout(10):
            try:
                return await self.reader.read() == b""
            except ConnectionResetError:
                return True


@asynccontextmanager
async def connected(address: Address, window: int | None = None) -> AsyncIterator[Line]:
    """`window` is how many bytes this side takes that nobody reads; the kernel's choice is megabytes."""
    with socket() as plug:
        if window:
            plug.setsockopt(SOL_SOCKET, SO_RCVBUF, window)
        plug.setblocking(False)
        await asyncio.get_running_loop().sock_connect(plug, (address.host, address.port))
        reader, writer = await asyncio.open_connection(sock=plug.dup(), limit=window or 2**20)
    try:
        yield Line(reader, writer)
    finally:
        writer.close()


def head(request: str, *fields: str, host: str | None = "conch") -> bytes:
    lines = [f"{request} HTTP/1.1", *([f"Host: {host}"] if host else []), *fields]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")
