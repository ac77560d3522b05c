"""`RateLimit-Policy` and `RateLimit` (draft-ietf-httpapi-ratelimit-headers): structured fields, one member per limit."""

from app.admission.limiter import Policy

_UNITS: dict[Policy, str] = {
    "requests": "",
    "characters": ';qu="characters"',
    "in_flight": ';qu="concurrent-requests"',
    "daily": ';qu="characters"',
}


def label(name: str) -> str:
    """As a string of RFC 9651, which knows printable ASCII only."""
    printable = "".join(character if " " <= character <= "~" else "?" for character in name)
    escaped = printable.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def policy_member(name: str, policy: Policy, quota: int, window: int) -> str:
    """Of `RateLimit-Policy`: `window` are the seconds in which an empty quota fills up, 0 where it does not by itself."""
    span = f";w={window}" if window else ""
    return f"{label(name)};q={quota}{_UNITS[policy]}{span}"
