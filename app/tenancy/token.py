"""Tokens (JWT) that an issuer of `tokens.yaml` signed: verified here, remembered for a minute at most.

Nothing in a token chooses how it is verified, except among what its issuer is configured with: no key and no address that its
header carries is ever used, no algorithm that is not on the issuer's list, and none with a shared secret is on any.
"""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from time import monotonic
from typing import Any

import httpx
import jwt

from app.tenancy.grant import Grant, Reason, TokenRefused
from app.tenancy.issuer import Issuer
from app.tenancy.jwks import Jwks
from app.tenancy.key import digest

_REMEMBERED_SECONDS = 60.0
_MOST_REMEMBERED = 10_000
_MOST_KID_CHARACTERS = 256
_TYPES = {"jwt", "at+jwt", "application/at+jwt"}
_LEADING_ASTRAY = {"jku", "jwk", "x5u", "x5c", "crit", "b64"}
"""Header parameters that bring a key of their own, or change what the rest means."""


class Tokens:
    """`keys` are by the issuer's name."""

    def __init__(self, issuers: Iterable[Issuer], clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._client = httpx.AsyncClient(timeout=None, follow_redirects=False)  # noqa: S113  (each fetch has its own)
        self._issuers: dict[str, Issuer] = {}
        self._remembered: OrderedDict[bytes, tuple[Grant, float]] = OrderedDict()
        self._replaced = asyncio.Event()
        self.keys: dict[str, Jwks] = {}
        self.replace(issuers)

    def replace(self, issuers: Iterable[Issuer]) -> None:
        """What is known of an issuer's keys stays while it publishes them at the same place; what is remembered of its tokens
        stays only if nothing about it changed.
        """
        before, self._issuers = self._issuers, {issuer.name: issuer for issuer in issuers}
        same = {name for name, issuer in self._issuers.items() if before.get(name) == issuer}
        self.keys = {name: self._keys_of(issuer) for name, issuer in self._issuers.items()}
        self._remembered = OrderedDict(item for item in self._remembered.items() if item[1][0].issuer in same)
        self._replaced.set()

    def remembered(self, token: bytes) -> Grant | None:
        key = digest(token)
        grant, until = self._remembered.get(key, (None, 0.0))
        if grant is None or until <= self._clock():
            return None
        self._remembered.move_to_end(key)
        return grant

    async def verify(self, token: bytes) -> Grant:
        text, header, claims = _unverified(token)
        issuer = self._issuer(claims)
        algorithm = _algorithm(header, issuer)
        key = await self.keys[issuer.name].find(_key_id(header), algorithm)
        if self._issuers.get(issuer.name) != issuer:  # a reload came in between
            return await self.verify(token)
        if key is None:
            raise TokenRefused("token_forged", "this token is signed by a key that its issuer does not publish")
        claims = _verified(text, key, algorithm, issuer)
        grant = Grant(issuer.name, _tenant(claims, issuer), _scopes(claims.get(issuer.scope_claim)))
        self._remember(token, grant, claims["exp"])
        return grant

    async def watch(self) -> None:
        """For ever: keep the keys of every issuer fresh, also of those that come later."""
        watches: dict[Jwks, asyncio.Task[None]] = {}
        async with asyncio.TaskGroup() as group:
            while True:
                current = set(self.keys.values())
                for retired in watches.keys() - current:
                    watches.pop(retired).cancel()
                watches |= {keys: group.create_task(keys.watch()) for keys in current - watches.keys()}
                await self._replaced.wait()
                self._replaced.clear()

    async def close(self) -> None:
        """Nothing is fetched any more."""
        for keys in self.keys.values():
            keys.close()
        await self._client.aclose()

    def _keys_of(self, issuer: Issuer) -> Jwks:
        known = self.keys.get(issuer.name)
        return known if known and known.fits(issuer) else Jwks(issuer, self._client, self._clock)

    def _issuer(self, claims: Mapping[str, Any]) -> Issuer:
        name = claims.get("iss")
        issuer = self._issuers.get(name) if isinstance(name, str) else None
        if issuer is None:
            raise TokenRefused("token_untrusted", "this token's issuer is not one that is trusted here")
        return issuer

    def _remember(self, token: bytes, grant: Grant, expires_at: float) -> None:
        now = time.time()
        seconds = min(expires_at, now + _REMEMBERED_SECONDS) - now
        if seconds > 0:
            self._remembered[digest(token)] = (grant, self._clock() + seconds)
            if len(self._remembered) > _MOST_REMEMBERED:
                self._remembered.popitem(last=False)


def _unverified(token: bytes) -> tuple[str, dict[str, Any], dict[str, Any]]:
    try:
        text = token.decode("ascii")
        parts = jwt.decode_complete(text, options={"verify_signature": False})
    except (UnicodeDecodeError, jwt.PyJWTError):
        raise TokenRefused("token_malformed", "this is neither a key nor a token") from None
    header = parts["header"]
    if header.keys() & _LEADING_ASTRAY:
        raise TokenRefused("token_malformed", "this token's header has a parameter that is not taken here")
    kind = header.get("typ", "JWT")
    if not isinstance(kind, str) or kind.lower() not in _TYPES:
        raise TokenRefused("token_malformed", "this token is of a type that is not taken here")
    return text, header, parts["payload"]


def _algorithm(header: Mapping[str, Any], issuer: Issuer) -> str:
    algorithm = header.get("alg")
    if not isinstance(algorithm, str) or algorithm not in issuer.algorithms:
        raise TokenRefused("token_untrusted", "this token is signed with an algorithm that its issuer may not use here")
    return algorithm


def _key_id(header: Mapping[str, Any]) -> str | None:
    key_id = header.get("kid")
    if key_id is not None and len(key_id) > _MOST_KID_CHARACTERS:
        raise TokenRefused("token_malformed", "this token's key id is too long")
    return key_id


def _verified(text: str, key: jwt.PyJWK, algorithm: str, issuer: Issuer) -> dict[str, Any]:
    try:
        claims = jwt.decode(
            text,
            key,
            algorithms=[algorithm],
            audience=issuer.audiences,
            issuer=issuer.name,
            leeway=issuer.leeway,
            options={"require": ["exp", "iss", "aud"]},
        )
    except jwt.PyJWTError as error:
        raise _refused(error) from None
    if any(type(claims.get(name, 0)) not in (int, float) for name in ("exp", "nbf", "iat")):
        raise TokenRefused("token_malformed", "this token's times are not numbers")
    return claims


_REFUSALS: tuple[tuple[type[jwt.PyJWTError], Reason, str], ...] = (
    (jwt.ExpiredSignatureError, "token_expired", "this token has expired"),
    (jwt.ImmatureSignatureError, "token_early", "this token is not valid yet"),
    (jwt.InvalidAudienceError, "token_untrusted", "this token is for another audience"),
    (jwt.MissingRequiredClaimError, "token_malformed", "this token lacks a claim: it must have exp, iss and aud"),
    (jwt.InvalidSignatureError, "token_forged", "this token's signature does not hold"),
    (jwt.PyJWTError, "token_malformed", "this token is not one that can be verified"),
)


def _refused(error: jwt.PyJWTError) -> TokenRefused:
    return next(TokenRefused(reason, sentence) for kind, reason, sentence in _REFUSALS if isinstance(error, kind))


def _tenant(claims: Mapping[str, Any], issuer: Issuer) -> str:
    tenant = claims.get(issuer.tenant_claim)
    if not isinstance(tenant, str) or not issuer.may_vouch_for(tenant):
        raise TokenRefused("token_tenant", "this token names no tenant that its issuer may vouch for")
    return tenant


def _scopes(claim: object) -> frozenset[str]:
    """A list, or words with spaces between them. Without the claim a token allows nothing."""
    words = claim.split() if isinstance(claim, str) else claim or ()
    if not isinstance(words, list | tuple) or not all(isinstance(word, str) for word in words):
        raise TokenRefused("token_malformed", "this token's scopes are neither words nor a list of words")
    return frozenset(words)
