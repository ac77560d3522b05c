"""`RateLimit-Policy` and `RateLimit` (draft-ietf-httpapi-ratelimit-headers): structured fields, one member per limit."""

from collections.abc import Sequence
from functools import lru_cache

from app.admission.limiter import Policy, Standing

_UNITS: dict[Policy, str] = {
    "requests": "",
    "characters": ';qu="characters"',
    "in_flight": ';qu="concurrent-requests"',
    "daily": ';qu="characters"',
}


def rate_limit_headers(standings: Sequence[Standing]) -> list[tuple[bytes, bytes]]:
    if not standings:
        return []
    policies = ", ".join([_policy(s.name, s.policy, s.quota, s.window) for s in standings])
    now = ", ".join([f"{_name(s.name)};r={s.remaining};t={s.reset}" for s in standings])
    return [(b"ratelimit-policy", policies.encode()), (b"ratelimit", now.encode())]


@lru_cache(4096)
def _policy(name: str, policy: Policy, quota: int, window: int) -> str:
    span = f";w={window}" if window else ""
    return f"{_name(name)};q={quota}{_UNITS[policy]}{span}"


@lru_cache(4096)
def _name(name: str) -> str:
    """As a string of RFC 9651, which knows printable ASCII only."""
    printable = "".join(character if " " <= character <= "~" else "?" for character in name)
    escaped = printable.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
