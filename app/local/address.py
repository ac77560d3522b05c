"""Addresses to listen at."""

import errno
import random
import socket
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from app.local.trouble import Exit, Trouble

# Below the range from which the kernel takes ports of outgoing connections, so that none is taken while a part restarts.
QUIET = range(20000, 32000)
ANYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}


@dataclass(frozen=True, slots=True)
class Address:
    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> "Address":
        host, colon, port = text.rpartition(":")
        if not colon or not port.isdecimal() or int(port) > 65535:
            raise Trouble(f"{text!r} is not an address.", "Write it as host:port, for example 127.0.0.1:8080.")
        return cls(host.removeprefix("[").removesuffix("]"), int(port))

    @classmethod
    def free(cls, host: str = "127.0.0.1") -> "Address":
        """One that nobody uses now. Nothing holds it until it is bound, so bind it soon."""
        return cls.several_free(1, host)[0]

    @classmethod
    def several_free(cls, count: int, host: str = "127.0.0.1") -> list["Address"]:
        return list(islice((found for found in _candidates(host) if found.is_free()), count))

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def url(self) -> str:
        """Where a browser on this machine finds it."""
        return f"http://{Address(ANYWHERE.get(self.host, self.host), self.port)}"

    def is_free(self) -> bool:
        return self._refusal() is None

    def claim(self, variable: str) -> "Address":
        """Itself when it can be listened at (a free one in place of port 0); otherwise raises, saying who has it."""
        if self.port == 0:
            return Address.free(self.host)
        refusal = self._refusal()
        if refusal is None:
            return self
        if refusal.errno != errno.EADDRINUSE:
            what = f"Nothing can listen at {self}: {refusal.strerror}."
            raise Trouble(what, f"Name another address: {variable}=127.0.0.1:8080 make run", Exit.TAKEN)
        holder = holder_of(self.port)
        other = Address(self.host, self.port + 1000 if self.port < 60000 else self.port - 1000)
        raise Trouble(
            f"{self} is taken{f', by {holder}' if holder else ''}.",
            f"Stop that, or listen elsewhere: {variable}={other} make run",
            Exit.TAKEN,
        )

    def _refusal(self) -> OSError | None:
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((self.host, self.port))
            except OSError as refusal:
                return refusal
        return None


def holder_of(port: int) -> str | None:
    """The process that listens at a port, as `name (pid 1234)`, where we are allowed to see it."""
    inodes = set(_listening(port))
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # another user's, or gone meanwhile
            if any(str(descriptor.readlink()) in inodes for descriptor in (process / "fd").iterdir()):
                return f"{(process / 'comm').read_text().strip()} (pid {process.name})"
    return None


def _listening(port: int) -> Iterator[str]:
    listen, local, state, inode = "0A", 1, 3, 9
    for table in (Path("/proc/net/tcp"), Path("/proc/net/tcp6")):
        with suppress(OSError):
            for line in table.read_text().splitlines()[1:]:
                column = line.split()
                if column[state] == listen and int(column[local].rpartition(":")[2], 16) == port:
                    yield f"socket:[{column[inode]}]"


def _candidates(host: str) -> Iterator[Address]:
    return (Address(host, port) for port in random.sample(QUIET, 200))
