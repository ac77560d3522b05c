"""The public keys of one issuer, fetched by HTTP and kept. No request waits for them but one whose key is not known."""

import asyncio
import json
import logging
import math
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from time import monotonic
from typing import Any

import httpx
import jwt
from cryptography.exceptions import UnsupportedAlgorithm

from app.tenancy.grant import IssuerAway
from app.tenancy.issuer import Issuer

_log = logging.getLogger("conch.tenancy")

_FETCH_SECONDS = 3.0
_MOST_BYTES = 256 * 1024
_MOST_KEYS = 100
_COOL_DOWN = 30.0
"""Between two fetches for keys that nobody knows: anybody can make up the name of one."""
_RETRY = 5.0
_SHORTEST_AGE, _AGE, _LONGEST_AGE = 60.0, 300.0, 3600.0
_STALEST = 24 * 3600.0
"""So long may the issuer be away; after that, a key that it withdrew in the meantime must not go on opening doors."""

_PUBLIC_MEMBERS = ("kty", "crv", "n", "e", "x", "y")
_SHORTEST_RSA = 2048

Sleep = Callable[[float], Awaitable[None]]
KeyRing = Mapping[tuple[str | None, str], jwt.PyJWK]
"""By key id and algorithm, and by `None` and algorithm where only one key of the issuer is for it."""


class FetchFailed(Exception):
    """The words are ours: never the issuer's."""


class Jwks:
    """`failures` counts the fetches that brought nothing."""

    def __init__(
        self, issuer: Issuer, client: httpx.AsyncClient, clock: Callable[[], float] = monotonic, sleep: Sleep = asyncio.sleep
    ) -> None:
        self.failures = 0
        self._issuer = issuer
        self._client = client
        self._clock = clock
        self._sleep = sleep
        self._keys: KeyRing = {}
        self._fetched_at = -math.inf
        self._age = _AGE
        self._failing = False
        self._failed_at = -math.inf
        self._asked_at = -math.inf
        self._flight: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len({kid for kid, _ in self._keys if kid is not None})

    def fits(self, issuer: Issuer) -> bool:
        """Whether these are that issuer's keys too, whatever else is said of it."""
        own = self._issuer
        return (own.jwks_url, own.algorithms) == (issuer.jwks_url, issuer.algorithms)

    async def find(self, kid: str | None, algorithm: str) -> jwt.PyJWK | None:
        """The key that a token names. Raises `IssuerAway` where no key was ever seen, or none for too long."""
        if self._is_usable() and (key := self._keys.get((kid, algorithm))) is not None:
            return key
        if self._may_ask():
            self._asked_at = self._clock() if self._is_usable() else self._asked_at
            await self.refresh()
        if not self._is_usable():
            raise IssuerAway(math.ceil(max(1.0, self._failed_at + _RETRY - self._clock())))
        return self._keys.get((kid, algorithm))

    async def refresh(self) -> None:
        """Fetches, or waits for the fetch that is under way. Never raises: a failure is counted, and said in the log."""
        if self._flight is None:
            self._flight = asyncio.create_task(self._fetch())
            self._flight.add_done_callback(self._landed)
        await asyncio.shield(self._flight)

    async def watch(self) -> None:
        """For ever: fetch at once, and again before what is there is out of date."""
        while True:
            await self.refresh()
            await self._sleep(_RETRY if self._failing else self._age)

    def close(self) -> None:
        if self._flight is not None:
            self._flight.cancel()

    def _is_usable(self) -> bool:
        return self._clock() < self._fetched_at + _STALEST

    def _may_ask(self) -> bool:
        if self._flight is not None:
            return True
        now = self._clock()
        return now >= self._failed_at + _RETRY and (not self._is_usable() or now >= self._asked_at + _COOL_DOWN)

    def _landed(self, flight: "asyncio.Task[None]") -> None:
        self._flight = None

    async def _fetch(self) -> None:
        try:
            async with asyncio.timeout(_FETCH_SECONDS):
                body, age = await self._download()
            keys = key_ring(body, self._issuer.algorithms)
        except TimeoutError:
            self._fail(f"no answer within {_FETCH_SECONDS:g} s")
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            self._fail(type(error).__name__)
        except FetchFailed as failed:
            self._fail(str(failed))
        else:
            if self._failing:
                _log.info("the keys of %s can be fetched again", self._issuer.name)
            self._failing = False
            self._keys, self._age, self._fetched_at = keys, age, self._clock()

    def _fail(self, why: str) -> None:
        if not self._failing:
            there = f"{len(self)} from before stay" if self._is_usable() else "none are there"
            _log.warning("the keys of %s can't be fetched (%s); %s", self._issuer.name, why, there)
        self.failures += 1
        self._failing, self._failed_at = True, self._clock()

    async def _download(self) -> tuple[bytes, float]:
        headers = {"accept": "application/json", "accept-encoding": "identity"}
        async with self._client.stream("GET", self._issuer.jwks_url, headers=headers) as answer:
            # A redirect is not followed: it could lead to where nothing is encrypted.
            if answer.status_code != 200:
                raise FetchFailed(f"status {answer.status_code}")
            if answer.headers.get("content-encoding", "identity") != "identity":
                raise FetchFailed("a compressed answer, unasked")
            body = bytearray()
            async for part in answer.aiter_raw():
                body += part
                if len(body) > _MOST_BYTES:
                    raise FetchFailed(f"more than {_MOST_BYTES} bytes")
        return bytes(body), _age(answer.headers.get("cache-control", ""))


def _age(cache_control: str) -> float:
    match = re.search(r"(?:^|[\s,])max-age=(\d{1,9})", cache_control.lower())
    return min(max(float(match[1]), _SHORTEST_AGE), _LONGEST_AGE) if match else _AGE


def key_ring(body: bytes, algorithms: frozenset[str]) -> KeyRing:
    """What of a key set can be used; raises `FetchFailed` where that is nothing."""
    try:
        content = json.loads(body)
    except (ValueError, RecursionError):
        raise FetchFailed("not JSON") from None
    entries = content.get("keys") if isinstance(content, dict) else None
    if not isinstance(entries, list) or len(entries) > _MOST_KEYS:
        raise FetchFailed("not a key set")
    found = [
        (entry.get("kid"), algorithm, key)
        for entry in filter(_signs, entries)
        for algorithm in algorithms & _fitting(entry)
        if (key := _key(entry, algorithm))
    ]
    if not found:
        raise FetchFailed("no key in it can be used with the algorithms of this issuer")
    named = {(kid, algorithm): key for kid, algorithm, key in found if kid is not None}
    numbers = Counter(algorithm for _, algorithm, _ in found)
    return {**named, **{(None, algorithm): key for _, algorithm, key in found if numbers[algorithm] == 1}}


def _signs(entry: object) -> bool:
    if not isinstance(entry, dict) or not isinstance(entry.get("kid", ""), str):
        return False
    uses = entry.get("key_ops", ["verify"])
    return entry.get("use", "sig") == "sig" and isinstance(uses, list) and "verify" in uses


def _fitting(entry: Mapping[str, Any]) -> frozenset[str]:
    fitting = _ALGORITHMS.get((str(entry.get("kty")), str(entry.get("crv", ""))), frozenset())
    return fitting & {entry["alg"]} if isinstance(entry.get("alg"), str) else fitting


_ALGORITHMS: dict[tuple[str, str], frozenset[str]] = {
    ("RSA", ""): frozenset({"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"}),
    ("EC", "P-256"): frozenset({"ES256"}),
    ("EC", "P-384"): frozenset({"ES384"}),
    ("EC", "P-521"): frozenset({"ES512"}),
    ("OKP", "Ed25519"): frozenset({"EdDSA"}),
}


def _key(entry: Mapping[str, Any], algorithm: str) -> jwt.PyJWK | None:
    # The private members are left behind, should an issuer publish them.
    public = {name: entry[name] for name in _PUBLIC_MEMBERS if name in entry}
    try:
        key = jwt.PyJWK(public, algorithm)
    except (jwt.PyJWTError, ValueError, TypeError, UnsupportedAlgorithm):
        return None
    return None if getattr(key.key, "key_size", _SHORTEST_RSA) < _SHORTEST_RSA and entry["kty"] == "RSA" else key
