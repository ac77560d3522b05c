"""A door with TLS before a server that speaks none, such as the Redis of these tests.

Who speaks plainly passes too, and is counted apart: that is how the servers of a set talk among themselves, at the addresses by
which they are known.
"""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing, suppress
from dataclasses import dataclass, field
from pathlib import Path

from app.local.address import Address

_HANDSHAKE = 0x16
End = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@dataclass
class Front:
    """`secure` counts those who came in by TLS, `plain` those without."""

    address: Address
    target: Address
    context: ssl.SSLContext
    secure: int = 0
    plain: int = 0
    inside: set["asyncio.Task[None]"] = field(default_factory=set)

    async def welcome(self, door: socket.socket) -> None:
        """For ever."""
        while True:
            guest, _ = await asyncio.get_running_loop().sock_accept(door)
            task = asyncio.create_task(self._serve(guest))
            self.inside.add(task)
            task.add_done_callback(self.inside.discard)

    async def _serve(self, guest: socket.socket) -> None:
        first = await _first_byte(guest)
        with suppress(OSError):
            here = await _opened(guest, self.context if first == _HANDSHAKE else None)
            with closing(here[1]):
                self.secure += first == _HANDSHAKE
                self.plain += first != _HANDSHAKE
                there = await asyncio.open_connection(self.target.host, self.target.port)
                with closing(there[1]):
                    await _connected(here, there)


async def _first_byte(guest: socket.socket) -> int | None:
    """Looked at, and left where it is."""
    loop, there = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(guest, there.set)
    try:
        await there.wait()
    except asyncio.CancelledError:
        guest.close()
        raise
    finally:
        loop.remove_reader(guest)
    return next(iter(guest.recv(1, socket.MSG_PEEK)), None)


async def _opened(guest: socket.socket, tls: ssl.SSLContext | None) -> End:
    loop, reader = asyncio.get_running_loop(), asyncio.StreamReader()
    protocol = asyncio.StreamReaderProtocol(reader)
    transport, _ = await loop.connect_accepted_socket(lambda: protocol, guest, ssl=tls)
    return reader, asyncio.StreamWriter(transport, protocol, reader, loop)


async def _connected(here: End, there: End) -> None:
    """Until one of them leaves."""
    ways = [asyncio.create_task(_carry(source[0], target[1])) for source, target in ((here, there), (there, here))]
    try:
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for way in ways:
            way.cancel()


async def _carry(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await source.read(65536):
            target.write(data)
            await target.drain()


@asynccontextmanager
async def fronted(target: Address, context: ssl.SSLContext) -> AsyncIterator[Front]:
    front = Front(Address.free(), target, context)
    with socket.create_server((front.address.host, front.address.port), backlog=100) as door:
        door.setblocking(False)
        welcoming = asyncio.create_task(front.welcome(door))
        yield front
        for task in (welcoming, *front.inside):
            task.cancel()
        await asyncio.wait([welcoming, *front.inside])


def tls_server(certificate: tuple[Path, Path], *, clients: Path | None = None) -> ssl.SSLContext:
    """`certificate` and its key, by their files; `clients` is who must vouch for a caller's own."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    if clients is not None:
        context.load_verify_locations(clients)
        context.verify_mode = ssl.CERT_REQUIRED
    return context
