"""Pages of other origins (CORS). Keys travel in headers that a page sets by itself, never in cookies: what headers it wants to
send needs no list.
"""

import re
from collections.abc import Iterable, Mapping

from starlette.types import Scope

_NAMES = re.compile(rb"[A-Za-z0-9-]{1,64}( *, *[A-Za-z0-9-]{1,64}){0,31}")
_EXPOSED = (
    b"x-request-id, server-timing, ratelimit, ratelimit-policy, retry-after, conch-limiter, www-authenticate, "
    b"inference-header-content-length"
)
_A_DAY = b"86400"

Fields = list[tuple[bytes, bytes]]


class CrossOrigin:
    """`origins` as browsers send them, such as `https://app.example.com`; `*` stands for all."""

    def __init__(self, origins: Iterable[str]) -> None:
        self._origins = frozenset(origin.encode() for origin in origins)

    def fields(self, headers: Mapping[bytes, bytes]) -> Fields:
        """For every answer, refusals too, or a page could not read why."""
        origin = headers.get(b"origin", b"")
        if not self._admits(origin):
            return [(b"vary", b"origin")]
        return [
            (b"vary", b"origin"),
            (b"access-control-allow-origin", origin),
            (b"access-control-expose-headers", _EXPOSED),
        ]

    def preflight(self, scope: Scope, allow: str) -> Fields:
        headers = dict(scope["headers"])
        if b"access-control-request-method" not in headers or not self._admits(headers.get(b"origin", b"")):
            return []
        fields = [(b"access-control-allow-methods", allow.encode()), (b"access-control-max-age", _A_DAY)]
        names = headers.get(b"access-control-request-headers", b"").strip()
        if _NAMES.fullmatch(names):
            fields.append((b"access-control-allow-headers", names))
        return fields

    def _admits(self, origin: bytes) -> bool:
        return bool(origin) and (origin in self._origins or b"*" in self._origins)
