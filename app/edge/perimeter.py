"""Who may come in, decided before a byte of the body is read: a stranger costs a hash and a look-up."""

from time import monotonic

from starlette.types import ASGIApp, Receive, Scope, Send

from app.errors import Forbidden, Malformed, TooLarge, Unauthenticated, UnsupportedMedia, UriTooLong
from app.telemetry.exchange import Exchange
from app.tenancy.directory import Directory

_PUBLIC = frozenset({"/livez", "/readyz", "/openapi.json", "/docs", "/redoc"})
_PUBLIC_PREFIX = "/docs/"
_URI_BYTES = 8 * 1024


class Perimeter:
    """Decides on `scope["path"]` alone; the URL that Starlette rebuilds from the Host header can be bent."""

    def __init__(self, app: ASGIApp, directory: Directory, max_body_bytes: int) -> None:
        self._app = app
        self._directory = directory
        self._max_body_bytes = max_body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            self._check(scope)
        await self._app(scope, receive, send)

    def _check(self, scope: Scope) -> None:
        exchange: Exchange = scope["state"]["exchange"]
        if len(scope["raw_path"]) + len(scope["query_string"]) > _URI_BYTES:
            raise UriTooLong(f"a request target may have at most {_URI_BYTES} bytes")
        if scope["path"] in _PUBLIC or scope["path"].startswith(_PUBLIC_PREFIX):
            return
        headers = dict(scope["headers"])
        principal = self._directory.authenticate(_credential(headers))
        if principal is None:
            raise Unauthenticated(
                "this key is not known, or no longer valid",
                headers=(("www-authenticate", 'Bearer realm="conch", error="invalid_token"'),),
            )
        exchange.tenant, exchange.key_id = principal.tenant.id, principal.key_id
        if "infer" not in principal.scopes:
            raise Forbidden("this key has not the scope infer")
        scope["state"]["principal"] = principal
        self._check_body(headers)
        exchange.auth = monotonic() - exchange.started

    def _check_body(self, headers: dict[bytes, bytes]) -> None:
        length = headers.get(b"content-length", b"0")
        if not length.isdigit():
            raise Malformed("Content-Length is not a number")
        if int(length) > self._max_body_bytes:
            raise TooLarge(f"a body may have at most {self._max_body_bytes} bytes")
        if headers.get(b"content-encoding", b"identity").lower() != b"identity":
            raise UnsupportedMedia("a compressed body is not taken")


def _credential(headers: dict[bytes, bytes]) -> bytes:
    """The key as it was sent; raises `Unauthenticated` that says how it should be sent."""
    authorization = headers.get(b"authorization", b"").strip()
    key = headers.get(b"x-api-key", b"").strip()
    if authorization:
        scheme, _, token = authorization.partition(b" ")
        if scheme.lower() != b"bearer" or not token.strip():
            raise _unasked("the Authorization header must be: Bearer, a space, and the key")
        if key and key != token.strip():
            raise _unasked("Authorization and X-API-Key carry different keys; send one of them")
        return token.strip()
    if not key:
        raise _unasked("send a key, as Authorization: Bearer or as X-API-Key")
    return key


def _unasked(detail: str) -> Unauthenticated:
    return Unauthenticated(detail, headers=(("www-authenticate", 'Bearer realm="conch"'),))
