"""Header fields that every answer has of its own."""

import re
from random import getrandbits

from app.telemetry.exchange import Exchange

_REQUEST_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")


def request_id_of(given: bytes) -> str:
    """The caller's own, where it is fit for a log."""
    # It is a name and no secret: the kernel need not be asked for it.
    return given.decode() if _REQUEST_ID.fullmatch(given) else f"{getrandbits(96):024x}"


def fields_of(exchange: Exchange) -> list[tuple[bytes, bytes]]:
    fields = [
        (b"x-request-id", exchange.request_id.encode()),
        (b"server-timing", timing(exchange)),
        (b"x-content-type-options", b"nosniff"),
        (b"vary", b"accept-encoding"),
        *exchange.limit_headers,
    ]
    if exchange.degraded:
        fields.append((b"conch-limiter", b"degraded"))
    return fields


def timing(exchange: Exchange) -> bytes:
    """The value of Server-Timing."""
    return b"auth;dur=%.2f, admission;dur=%.2f, triton;dur=%.2f, total;dur=%.2f" % (
        exchange.auth * 1000,
        exchange.admission * 1000,
        exchange.triton * 1000,
        exchange.elapsed() * 1000,
    )
