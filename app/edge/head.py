"""What the head of a request must be beyond what the parser asks: read in one way, by us and by every proxy in front."""

import re
from collections.abc import Collection, Sequence
from functools import lru_cache

from app.errors import Malformed

_HOST = re.compile(rb"(?:[A-Za-z0-9._-]{1,255}|\[[0-9A-Fa-f:.]{2,45}\])(?::([0-9]{0,5}))?")
_ABSOLUTE = re.compile(rb"https?://([^/?#]*)/.*", re.IGNORECASE)
_VERSIONS = ("1.1", "1.0")
_ONCE = (b"host", b"content-type", b"content-encoding")
_PROBES = (b"/livez", b"/readyz")  # a kubelet asks by the pod's address
_HIGHEST_PORT = 65_535


def fault_of(
    method: bytes,
    target: bytes,
    version: str,
    fields: Sequence[tuple[bytes, bytes]],
    hosts: Collection[bytes] = (),
) -> Malformed | None:
    """`fields` have their names in lower case. `hosts` are those that a request may be for; any, if there are none."""
    if version not in _VERSIONS:
        return Malformed("the protocol must be HTTP/1.1, or HTTP/1.0")
    known = dict(fields)
    if len(known) != len(fields) and (repeated := _repeated(fields)):
        return Malformed(f"a request must have exactly one {repeated} field")
    host = known.get(b"host")
    if host is None:
        if version != "1.0":
            return Malformed("a request must have exactly one Host field")
    elif not is_host(host):
        return Malformed("the Host field must be a name or an address, and a port if there is one")
    if hosts and target not in _PROBES and _without_port(host or b"") not in hosts:
        return Malformed("the Host field names none of the hosts that are served here")
    coding = known.get(b"transfer-encoding")
    if coding is not None and (version == "1.0" or coding.lower() != b"chunked"):
        return Malformed("the only transfer coding is chunked, and HTTP/1.0 has none")
    if not target.startswith(b"/") or b"#" in target or method == b"CONNECT":
        return _fault_of_target(method, target, host)
    return None


@lru_cache(64)
def is_host(value: bytes) -> bool:
    match = _HOST.fullmatch(value)
    return match is not None and int(match[1] or 0) <= _HIGHEST_PORT


def _without_port(host: bytes) -> bytes:
    name, _, port = host.rpartition(b":")
    return (name if name and b"]" not in port else host).lower()


def _repeated(fields: Sequence[tuple[bytes, bytes]]) -> str:
    for once in _ONCE:
        if sum(name == once for name, _ in fields) > 1:
            return once.decode().title()
    return ""


def _fault_of_target(method: bytes, target: bytes, host: bytes | None) -> Malformed | None:
    """A proxy's form is taken where it agrees with Host; other servers would let it win, so that the two must not differ."""
    if method == b"CONNECT":
        return Malformed("CONNECT asks for a tunnel, and there are none here")
    if target == b"*" and method == b"OPTIONS":
        return None
    absolute = _ABSOLUTE.fullmatch(target)
    if absolute is None or b"#" in target:
        return Malformed("the request target must be a path")
    if host is not None and absolute[1].lower() != host.lower():
        return Malformed("the request target and the Host field name different hosts")
    return None
