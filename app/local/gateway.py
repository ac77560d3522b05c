"""The gateway as a part of the embedded stack."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from app.local.address import Address
from app.local.health import is_well
from app.local.part import Part

_PLAIN = dict.fromkeys(
    (
        *("CONCH_TLS_CERT_FILE", "CONCH_TLS_KEY_FILE", "CONCH_ADMIN_TLS_CERT_FILE", "CONCH_ADMIN_TLS_KEY_FILE"),
        "CONCH_ADMIN_TLS_CLIENT_CA_FILE",
    ),
    "",
)
"""On one machine nobody listens in, and the stack would ask its gateway in vain."""


def gateway(listen: Address, settings: Mapping[str, str], directory: Path) -> Part:
    """`settings` are the CONCH_* variables that differ from the caller's own environment."""
    return Part(
        name="gateway",
        command=(sys.executable, "-m", "app.cli", "serve"),
        environment={**os.environ, **_PLAIN, **settings, "CONCH_LISTEN": str(listen)},
        directory=directory,
        is_ready=lambda: is_ready(listen),
        within=90,
        grace=25,
    )


async def is_ready(listen: Address) -> bool:
    return await is_well(f"{listen.url}/readyz")
