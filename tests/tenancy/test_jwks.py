"""An issuer's keys: fetched seldom, kept when it is away, and never by what a stranger sends."""

import asyncio
import json
import logging
import ssl
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler
from ipaddress import ip_address
from pathlib import Path
from time import sleep

import httpx
import pytest
import pytest_asyncio
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from app.tenancy.grant import IssuerAway
from app.tenancy.issuer import Issuer
from app.tenancy.jwks import Jwks
from app.tenancy.token import Tokens
from tests.fakes.issuer import FakeIssuer, jwk, send
from tests.gateway.problems import CANARY


@pytest.fixture
def idp() -> Iterator[FakeIssuer]:
    idp = FakeIssuer()
    yield idp
    idp.vanish()


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest_asyncio.fixture(loop_scope="session")
async def keys(idp: FakeIssuer, clock: Clock) -> AsyncIterator[Jwks]:
    async with httpx.AsyncClient(timeout=None, trust_env=False) as client:
        keys = Jwks(issuer_at(idp), client, clock)
        yield keys
        keys.close()


def issuer_at(idp: FakeIssuer) -> Issuer:
    return Issuer(idp.name, frozenset({"conch"}), frozenset({"RS256"}), idp.url)


async def test_a_key_is_fetched_once_for_all_who_wait_for_it(idp: FakeIssuer, keys: Jwks) -> None:
    def late(request: BaseHTTPRequestHandler) -> None:
        sleep(0.1)
        idp.serve(request)

    idp.answer = late
    found = await asyncio.gather(*(keys.find("k1", "RS256") for _ in range(50)))
    assert all(found)
    assert (idp.asked, len(keys), keys.failures) == (1, 1, 0)


async def test_a_storm_of_unknown_keys_fetches_once_per_cool_down(idp: FakeIssuer, keys: Jwks, clock: Clock) -> None:
    await keys.refresh()
    for start, fetches in ((0, 2), (29, 2), (31, 3), (60, 3), (62, 4)):
        clock.now = 1000 + start
        for at in range(20):
            assert await keys.find(f"unknown-{at}", "RS256") is None
        assert idp.asked == fetches
        assert await keys.find("k1", "RS256")


async def test_a_new_key_is_found_at_once_and_one_that_is_withdrawn_is_gone_with_it(idp: FakeIssuer, keys: Jwks) -> None:
    assert await keys.find("k1", "RS256")
    idp.keys = [jwk("k2")]
    assert await keys.find("k2", "RS256")
    assert await keys.find("k1", "RS256") is None
    assert idp.asked == 2


async def test_one_who_leaves_takes_the_keys_from_nobody_else(idp: FakeIssuer, keys: Jwks) -> None:
    def late(request: BaseHTTPRequestHandler) -> None:
        sleep(0.1)
        idp.serve(request)

    idp.answer = late
    leaving, staying = (asyncio.create_task(keys.find("k1", "RS256")) for _ in range(2))
    await asyncio.sleep(0.02)
    leaving.cancel()
    assert await staying
    assert idp.asked == 1


def answering(status: int, body: bytes, **headers: str) -> Callable[[BaseHTTPRequestHandler], None]:
    return lambda request: send(request, status, body, **headers)


def good() -> bytes:
    return json.dumps({"keys": [jwk("k1")]}).encode()


def endless(request: BaseHTTPRequestHandler) -> None:
    request.send_response(200)
    request.end_headers()
    try:
        while True:
            request.wfile.write(b" " * 65536)
    except OSError:
        pass


def babbling(request: BaseHTTPRequestHandler) -> None:
    request.wfile.write(b"nonsense\r\n\r\n")


FAILURES: dict[str, Callable[[BaseHTTPRequestHandler], None]] = {
    "status 500": answering(500, good()),
    "status 404": answering(404, b""),
    "status 302": answering(302, b"", location="/elsewhere"),
    "more than 262144 bytes": answering(200, good() + b" " * 300_000),
    "more than 262144 bytes, without end": endless,
    "a compressed answer": answering(200, good(), content_encoding="gzip"),
    "not JSON": answering(200, b"<html>" + CANARY.encode()),
    "not JSON, not UTF-8": answering(200, b"\xff\xfe"),
    "not JSON, nested without end": answering(200, b"[" * 100_000),
    "not a key set": answering(200, b"[]"),
    "not a key set, but keys": answering(200, b'{"keys": {}}'),
    "not a key set, but thousands": answering(200, json.dumps({"keys": [{}] * 101}).encode()),
    "no key in it": answering(200, b'{"keys": []}'),
    "no key in it that fits": answering(200, json.dumps({"keys": [jwk("k1", "ES256")]}).encode()),
    "RemoteProtocolError": babbling,
}


@pytest.mark.parametrize("name", FAILURES)
async def test_whatever_the_issuer_answers_instead_the_keys_that_are_there_stay(
    idp: FakeIssuer, keys: Jwks, clock: Clock, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    await keys.refresh()
    idp.answer = FAILURES[name]
    with caplog.at_level(logging.INFO, logger="conch.tenancy"):
        for _ in range(3):
            await keys.refresh()
        assert keys.failures == 3
        assert await keys.find("k1", "RS256")
        assert await keys.find("k2", "RS256") is None
        idp.answer = idp.serve
        clock.now += 40
        await keys.refresh()
    assert len(caplog.messages) == 2, "one for each change"
    assert name.partition(",")[0].partition(" that ")[0] in caplog.messages[0]
    assert "again" in caplog.messages[1]
    assert CANARY not in caplog.text


async def test_an_issuer_that_never_answers_is_not_waited_for_longer_than_a_moment(
    idp: FakeIssuer, keys: Jwks, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("app.tenancy.jwks._FETCH_SECONDS", 0.1)
    idp.answer = lambda request: sleep(1)
    with pytest.raises(IssuerAway):
        await keys.find("k1", "RS256")
    assert "no answer within 0.1 s" in caplog.text


async def test_an_issuer_that_was_never_there_is_asked_every_few_seconds_and_says_when_to_come_again(
    idp: FakeIssuer, keys: Jwks, clock: Clock
) -> None:
    idp.answer = FAILURES["status 500"]
    for seconds, wait, fetches in ((0, 5, 1), (0, 5, 1), (2.5, 3, 1), (4.9, 1, 1), (5, 5, 2), (6, 4, 2)):
        clock.now = 1000 + seconds
        with pytest.raises(IssuerAway) as caught:
            await keys.find("k1", "RS256")
        assert (caught.value.retry_after, idp.asked) == (wait, fetches)
    idp.answer = idp.serve
    clock.now += 5
    assert await keys.find("k1", "RS256")


async def test_keys_are_not_believed_for_ever_when_their_issuer_stays_away(idp: FakeIssuer, keys: Jwks, clock: Clock) -> None:
    await keys.refresh()
    idp.vanish()
    clock.now += 23 * 3600
    assert await keys.find("k1", "RS256")
    clock.now += 2 * 3600
    with pytest.raises(IssuerAway):
        await keys.find("k1", "RS256")
    idp.appear()
    clock.now += 5
    assert await keys.find("k1", "RS256")


def certificate() -> tuple[bytes, bytes]:
    """Of 127.0.0.1, signed by itself; and its private key."""
    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "idp")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return made.public_bytes(Encoding.PEM), private


async def test_an_issuer_must_prove_who_it_is_by_a_certificate_that_is_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chain, private = tmp_path / "chain.pem", tmp_path / "key.pem"
    for file, content in zip((chain, private), certificate(), strict=True):
        file.write_bytes(content)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(chain, private)
    idp = FakeIssuer(tls=tls)
    issuer = Issuer(idp.name, frozenset({"conch"}), frozenset({"RS256"}), idp.url)
    stranger = Tokens([issuer])
    with pytest.raises(IssuerAway):
        await stranger.keys[idp.name].find("k1", "RS256")
    assert idp.asked == 0
    monkeypatch.setenv("SSL_CERT_FILE", str(chain))
    trusted = Tokens([issuer])
    assert await trusted.verify(idp.token().encode())
    for tokens in (stranger, trusted):
        await tokens.close()
    idp.vanish()


@pytest.mark.parametrize(
    ("cache_control", "seconds"),
    [
        ("max-age=600", 600),
        ("public, max-age=120, must-revalidate", 120),
        ("max-age=1", 60),
        ("max-age=99999999", 3600),
        ("s-maxage=7", 300),
        ("no-store", 300),
        ("max-age=lots", 300),
    ],
)
async def test_keys_are_fetched_again_before_they_are_out_of_date(
    idp: FakeIssuer, clock: Clock, cache_control: str, seconds: int
) -> None:
    slept: list[float] = []

    async def no_time(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 2:
            raise asyncio.CancelledError

    answers = iter([answering(500, b""), answering(200, good(), cache_control=cache_control)])
    idp.answer = lambda request: next(answers)(request)
    async with httpx.AsyncClient(timeout=None, trust_env=False) as client:
        keys = Jwks(issuer_at(idp), client, clock, no_time)
        with pytest.raises(asyncio.CancelledError):
            await keys.watch()
        keys.close()
    assert slept == [5, seconds]
