"""Who fails to authenticate again and again, and who that is."""

import asyncio
from collections.abc import AsyncIterator
from ipaddress import ip_network
from typing import Any

import pytest

from app.edge.doorkeeper import Doorkeeper, Stranger
from app.edge.origin import Origin
from app.errors import RateLimited, Unauthenticated
from app.telemetry.metrics import Metrics
from tests.gateway.problems import CANARY, assert_problem
from tests.gateway.process import RunningGateway
from tests.peers import Redis

TRUSTED = [ip_network(network) for network in ("10.0.0.0/8", "192.0.2.1/32", "fd00::/8")]


def scope(client: str | None, *forwarded: str) -> dict[str, Any]:
    headers = [(b"x-forwarded-for", value.encode("latin-1")) for value in forwarded]
    return {"client": (client, 1234) if client is not None else None, "headers": headers}


ORIGINS = [
    ("203.0.113.7", (), "203.0.113.7"),
    ("203.0.113.7", ("198.51.100.1",), "203.0.113.7"),
    ("10.1.1.1", (), "10.1.1.1"),
    ("10.1.1.1", ("198.51.100.1",), "198.51.100.1"),
    ("10.1.1.1", ("6.6.6.6, 198.51.100.1",), "198.51.100.1"),
    ("10.1.1.1", ("6.6.6.6, 198.51.100.1, 10.2.2.2, 192.0.2.1",), "198.51.100.1"),
    ("10.1.1.1", ("6.6.6.6", "198.51.100.1"), "198.51.100.1"),
    ("10.1.1.1", ("10.3.3.3, 10.2.2.2",), "10.3.3.3"),
    ("10.1.1.1", ("198.51.100.1, nonsense",), "10.1.1.1"),
    ("10.1.1.1", ("198.51.100.1, nonsense, 10.2.2.2",), "10.2.2.2"),
    ("10.1.1.1", ("",), "10.1.1.1"),
    ("10.1.1.1", ("198.51.100.1:5678",), "198.51.100.1"),
    ("10.1.1.1", (" [2001:db8:1:2:3::4]:5678 ",), "2001:db8:1:2::"),
    ("::ffff:10.1.1.1", ("::ffff:198.51.100.1",), "198.51.100.1"),
    ("fd00::1%eth0", ("2001:db8:1:2:ffff::1",), "2001:db8:1:2::"),
    ("2001:db8:1:2:3::4", (), "2001:db8:1:2::"),
    (None, ("198.51.100.1",), ""),
    ("", (), ""),
]


@pytest.mark.parametrize(("client", "forwarded", "origin"), ORIGINS)
def test_a_client_is_the_last_address_that_a_trusted_proxy_saw(
    client: str | None, forwarded: tuple[str, ...], origin: str
) -> None:
    assert Origin(TRUSTED).of(scope(client, *forwarded)) == origin


def test_without_trusted_proxies_nobody_s_word_counts() -> None:
    assert Origin().of(scope("10.1.1.1", "198.51.100.1")) == "10.1.1.1"


def turned_away(keeper: Doorkeeper, client: str) -> bool:
    """Whether that was said in full."""
    refusal = keeper.turn_away(Stranger("unknown", "no"), scope(client))
    assert isinstance(refusal, Unauthenticated | RateLimited)
    assert isinstance(refusal, Unauthenticated) or (refusal.retry_after or 0) >= 1
    return isinstance(refusal, Unauthenticated)


@pytest.mark.parametrize(("per_second", "at_once"), [(10.0, 50), (1.0, 5), (0.5, 2), (0.1, 1), (1000.0, 5000)])
def test_an_address_may_fail_so_often_at_once_and_then_has_to_wait(
    monkeypatch: pytest.MonkeyPatch, per_second: float, at_once: int
) -> None:
    now = 1000.0
    monkeypatch.setattr("app.edge.doorkeeper.monotonic", lambda: now)
    keeper = Doorkeeper(Metrics(), Origin(), per_second)
    assert [turned_away(keeper, "203.0.113.7") for _ in range(at_once + 2)] == [True] * at_once + [False] * 2
    assert turned_away(keeper, "203.0.113.8"), "another address has failures of its own"
    now += 1 / per_second + 1e-4
    assert [turned_away(keeper, "203.0.113.7") for _ in range(2)] == [True, False]
    refusal = keeper.turn_away(Stranger("unknown", "no"), scope("203.0.113.7"))
    now += refusal.retry_after or 0
    assert turned_away(keeper, "203.0.113.7"), "what Retry-After says is enough"


def test_all_of_an_ipv6_network_is_one_caller() -> None:
    keeper = Doorkeeper(Metrics(), Origin(), 0.2)
    assert [turned_away(keeper, f"2001:db8:1:2::{at}") for at in range(2)] == [True, False]
    assert turned_away(keeper, "2001:db8:1:3::1")


def test_what_is_kept_of_addresses_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.edge.doorkeeper._MOST_ADDRESSES", 3)
    keeper = Doorkeeper(Metrics(), Origin(), 0.1)
    for at in range(100):
        turned_away(keeper, f"203.0.113.{at}")
    assert len(keeper._full_at) == 3
    assert not turned_away(keeper, "203.0.113.99")
    assert turned_away(keeper, "203.0.113.1"), "forgotten"


@pytest.fixture(scope="module")
async def guarded(gateways: Any, redis: Redis, staged_routes: object, _stage: Any) -> AsyncIterator[RunningGateway]:
    """Two failures at once; this machine is a trusted proxy."""
    settings = {"AUTH_FAILURES_PER_SECOND": "0.4", "TRUSTED_PROXIES": "127.0.0.0/8,::1"}
    gateway: RunningGateway = await gateways(
        TRITON=_stage.address, REDIS_URL=redis.url, ROUTES_FILE=str(staged_routes), **settings
    )
    yield gateway
    await gateway.stop()


async def ask(gateway: RunningGateway, client: str, key: str) -> Any:
    return await gateway.client.get("/v1/models", headers={"x-api-key": key, "x-forwarded-for": client})


async def test_guessing_is_slowed_down_and_a_valid_key_from_the_same_address_passes(guarded: RunningGateway) -> None:
    guesses = await asyncio.gather(*(ask(guarded, "203.0.113.7", f"ck_{CANARY}_{at}") for at in range(30)))
    refused = [guess for guess in guesses if guess.status_code == 429]
    assert len(refused) >= 27
    for guess in refused:
        assert_problem(guess, 429, "rate_limited")
        assert int(guess.headers["retry-after"]) >= 1
        assert "www-authenticate" not in guess.headers
    assert (await ask(guarded, "203.0.113.7", guarded.tenants.keys["open"])).status_code == 200
    assert_problem(await ask(guarded, "203.0.113.8", CANARY), 401, "unauthenticated")
    assert_problem(await ask(guarded, f"203.0.113.9, {CANARY}", CANARY), 401, "unauthenticated")


async def test_each_failure_is_counted_by_its_reason(guarded: RunningGateway) -> None:
    key = guarded.tenants.keys["open"]
    mistyped = key[:-1] + ("a" if key[-1] != "a" else "b")
    failures = {
        "absent": {},
        "misplaced": {"authorization": "Basic YTpi"},
        "malformed": {"x-api-key": CANARY},
        "mistyped": {"x-api-key": mistyped},
        "unknown": {"x-api-key": guarded.tenants.keys["expired"]},
    }
    for at, (reason, headers) in enumerate(failures.items()):
        before = await guarded.count("conch_auth_failures_total", reason=reason)
        answer = await guarded.client.get("/v1/models", headers={**headers, "x-forwarded-for": f"198.51.100.{at}"})
        assert_problem(answer, 401, "unauthenticated")
        assert ("mistyped" in answer.text) == (reason == "mistyped")
        assert await guarded.count("conch_auth_failures_total", reason=reason) == before + 1
    assert await guarded.count("conch_auth_failures_total", reason="limited") > 0


async def test_what_is_public_is_never_limited(guarded: RunningGateway) -> None:
    for _ in range(5):
        await ask(guarded, "203.0.113.66", CANARY)
    for path in ("/livez", "/readyz", "/openapi.json"):
        assert (await guarded.client.get(path, headers={"x-forwarded-for": "203.0.113.66"})).status_code == 200
