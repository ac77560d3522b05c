"""Who may come in, decided before a byte of the body is read: a stranger costs a hash and a look-up."""

from time import monotonic

from starlette.types import ASGIApp, Receive, Scope, Send

from app.edge.doorkeeper import Doorkeeper, Stranger
from app.edge.inflated import inflated
from app.errors import Forbidden, Malformed, TooLarge, Unavailable, UriTooLong
from app.telemetry.exchange import Exchange
from app.tenancy.directory import Directory
from app.tenancy.grant import IssuerAway, TokenRefused, Vouching
from app.tenancy.key import KeyMalformed, KeyMistyped, read_key
from app.tenancy.tenant import Principal

_PUBLIC = frozenset({"/", "/livez", "/readyz", "/openapi.json", "/openapi-3.0.json", "/docs", "/redoc", "/problems"})
_PUBLIC_PREFIXES = ("/docs/", "/problems/")
_URI_BYTES = 8 * 1024


class Perimeter:
    """Decides on `scope["path"]` alone; the URL that Starlette rebuilds from the Host header can be bent."""

    def __init__(
        self, app: ASGIApp, directory: Directory, doorkeeper: Doorkeeper, max_body_bytes: int, tokens: Vouching | None = None
    ) -> None:
        self._app = app
        self._directory = directory
        self._doorkeeper = doorkeeper
        self._max_body_bytes = max_body_bytes
        self._tokens = tokens

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            if len(scope["raw_path"]) + len(scope["query_string"]) > _URI_BYTES:
                raise UriTooLong(f"a request target may have at most {_URI_BYTES} bytes")
            if scope["path"] not in _PUBLIC and not scope["path"].startswith(_PUBLIC_PREFIXES):
                headers = dict(scope["headers"])
                try:
                    if len(headers) < len(scope["headers"]):
                        _refuse_twice(scope)
                    credential = _credential(headers)
                    principal = self._directory.authenticate(credential) or await self._vouched_for(credential)
                except Stranger as stranger:
                    raise self._doorkeeper.turn_away(stranger, scope) from None
                self._admit(principal, scope, headers)
                if (coding := headers.get(b"content-encoding")) is not None:
                    receive = inflated(coding, scope, receive)
        await self._app(scope, receive, send)

    async def _vouched_for(self, credential: bytes) -> Principal:
        """Whoever comes with what is no key that is known."""
        if credential.count(b".") != 2 or self._tokens is None:
            raise _unknown(credential)
        grant = self._tokens.remembered(credential)
        try:
            grant = grant or await self._tokens.verify(credential)
        except TokenRefused as refused:
            raise Stranger(refused.reason, refused.sentence, is_invalid=True) from None
        except IssuerAway as away:
            raise Unavailable("the keys of this token's issuer can't be fetched now", retry_after=away.retry_after) from None
        tenant = self._directory.tenants.get(grant.tenant)
        if tenant is None:
            raise Stranger("token_tenant", "there is no such tenant here as this token names", is_invalid=True)
        return grant.principal(tenant)

    def _admit(self, principal: Principal, scope: Scope, headers: dict[bytes, bytes]) -> None:
        exchange: Exchange = scope["state"]["exchange"]
        exchange.tenant, exchange.key_id = principal.tenant.id, principal.key_id
        if "infer" not in principal.scopes:
            raise Forbidden("this credential has not the scope infer")
        scope["state"]["principal"] = principal
        self._check_body(headers)
        exchange.auth = monotonic() - exchange.started

    def _check_body(self, headers: dict[bytes, bytes]) -> None:
        length = headers.get(b"content-length", b"0")
        if not length.isdigit():
            raise Malformed("Content-Length is not a number")
        if int(length) > self._max_body_bytes:
            raise TooLarge(f"a body may have at most {self._max_body_bytes} bytes")


def _refuse_twice(scope: Scope) -> None:
    """Which of them a proxy in front took for the caller's is anybody's guess."""
    names = [name for name, _ in scope["headers"]]
    if names.count(b"authorization") > 1 or names.count(b"x-api-key") > 1:
        raise Stranger("misplaced", "send one Authorization header, or one X-API-Key, with one key")


def _credential(headers: dict[bytes, bytes]) -> bytes:
    """The key or token as it was sent; a `Stranger` is told how it should be sent."""
    authorization = headers.get(b"authorization", b"").strip()
    key = headers.get(b"x-api-key", b"").strip()
    if authorization:
        scheme, _, token = authorization.partition(b" ")
        if scheme.lower() != b"bearer" or not token.strip():
            raise Stranger("misplaced", "the Authorization header must be: Bearer, a space, and the key")
        if key and key != token.strip():
            raise Stranger("misplaced", "Authorization and X-API-Key carry different keys; send one of them")
        return token.strip()
    if not key:
        raise Stranger("absent", "send a key, as Authorization: Bearer or as X-API-Key")
    return key


def _unknown(credential: bytes) -> Stranger:
    """All of it is known to whoever typed it: the checksum is no secret."""
    try:
        read_key(credential.decode("latin-1"))
    except KeyMalformed:
        return Stranger("malformed", "this key is not known; one of ours looks like ck_<env>_<id>_<secret>", is_invalid=True)
    except KeyMistyped:
        return Stranger("mistyped", "this key is mistyped: its checksum does not hold", is_invalid=True)
    return Stranger("unknown", "this key is not known, or no longer valid", is_invalid=True)
