"""Run by test_dns.py in a network of its own, where the system's resolver asks the name server below: glibc, DNS and all.

Two Tritons share a name there, which stands for one of them, for both, for the other, and for a while for nothing.
"""

import asyncio
import ctypes
import fcntl
import socket
import struct
import sys
import tempfile
from dataclasses import dataclass
from typing import cast

from app.triton.client import ChannelOptions, Endpoint
from app.triton.discovery import Roster
from tests.fakes.triton import FakeTriton

ONE, TWO = "127.0.0.1", "127.0.0.2"
NOERROR, SERVFAIL, NXDOMAIN = 0, 2, 3
_SIOCSIFFLAGS, _UP_AND_RUNNING, _MS_BIND = 0x8914, 0x41, 0x1000


@dataclass
class NameServer(asyncio.DatagramProtocol):
    """One name, with a time to live of nothing."""

    addresses: tuple[str, ...] = (ONE,)
    code: int = NOERROR
    asked: int = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.DatagramTransport", transport)

    def datagram_received(self, query: bytes, sender: tuple[str, int]) -> None:
        self.asked += 1
        end = query.index(b"\0", 12) + 5  # of the question: the name, its type and its class
        kind = int.from_bytes(query[end - 4 : end - 2], "big")
        addresses = self.addresses if kind == 1 and self.code == NOERROR else ()
        records = [b"\xc0\x0c\0\1\0\1\0\0\0\0\0\4" + socket.inet_aton(address) for address in addresses]
        head = query[:2] + struct.pack(">HHHHH", 0x8180 | self.code, 1, len(records), 0, 0)
        self._transport.sendto(head + query[12:end] + b"".join(records), sender)


def furnish() -> None:
    """The loopback, and a resolver that asks it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as line:
        fcntl.ioctl(line, _SIOCSIFFLAGS, struct.pack("16sh", b"lo", _UP_AND_RUNNING))
    bind_resolver(ONE)


def bind_resolver(address: str) -> None:
    with tempfile.NamedTemporaryFile("w") as file:
        file.write(f"nameserver {address}\noptions timeout:1 attempts:1\n")
        file.flush()
        if ctypes.CDLL(None).mount(file.name.encode(), b"/etc/resolv.conf", None, _MS_BIND, None):
            raise OSError("resolv.conf can't be replaced")


async def main() -> None:
    furnish()
    loop = asyncio.get_running_loop()
    _, names = await loop.create_datagram_endpoint(NameServer, local_addr=(ONE, 53))
    fakes = [FakeTriton({}, f"{host}:8001") for host in (ONE, TWO)]
    for fake in fakes:
        await fake.start()
    roster = Roster(("dns:///triton.conch.example:8001",), lambda address, name: Endpoint(address, ChannelOptions(), name))
    await roster.refresh()
    watching = asyncio.create_task(roster.watch(lambda: None))

    async def becomes(*hosts: str) -> None:
        async with asyncio.timeout(10):
            while [endpoint.address for endpoint in roster.endpoints] != [f"{host}:8001" for host in hosts]:
                await asyncio.sleep(0.01)
        await asyncio.gather(*(endpoint.live() for endpoint in roster.endpoints))

    await becomes(ONE)
    names.addresses = (TWO, ONE)
    began = loop.time()
    await becomes(ONE, TWO)
    assert loop.time() - began < 4
    for code in (SERVFAIL, NXDOMAIN):
        names.code, asked = code, names.asked
        while names.asked < asked + 3:
            await asyncio.sleep(0.01)
        await becomes(ONE, TWO)
    names.code, names.addresses = NOERROR, (TWO,)
    await becomes(TWO)
    watching.cancel()
    await roster.close()
    for fake in fakes:
        await fake.stop()
    sys.stdout.write("all as it should be\n")


if __name__ == "__main__":
    asyncio.run(main())
