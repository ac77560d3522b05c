"""Who may come in."""

from typing import Any

import pytest

from tests.edge.raw import connected, head
from tests.gateway.problems import CANARY, assert_problem
from tests.gateway.process import RunningGateway

PROTECTED = ["/v1/classify", "/v1/embeddings", "/v1/entities", "/v1/analyze", "/v1/models", "/v1/models/noop", "/nowhere"]
INVALID = 'Bearer realm="conch", error="invalid_token"'
ASKING = 'Bearer realm="conch"'


def mistyped(key: str) -> str:
    return key[:-1] + ("a" if key[-1] != "a" else "b")


def headers(gateway: RunningGateway, name: str) -> Any:
    key, other = gateway.tenants.keys["open"], gateway.tenants.keys["some"]
    table: dict[str, Any] = {
        "no key": {},
        "an empty key": {"x-api-key": ""},
        "a key without its scheme": {"authorization": key},
        "another scheme": {"authorization": f"Basic {key}"},
        "a scheme without a key": {"authorization": "Bearer"},
        "a key in a header that nobody reads": {"api-key": key, "x-token": key, "cookie": f"key={key}"},
        "two keys": {"authorization": f"Bearer {key}", "x-api-key": other},
        "a key twice": [("Authorization", f"Bearer {key}")] * 2,
        "a key after another": [("Authorization", f"Bearer {other}"), ("Authorization", f"Bearer {key}")],
        "a key twice in a field of its own": [("X-API-Key", key)] * 2,
        "an unknown key": {"authorization": f"Bearer ck_test_open_{CANARY}"},
        "a malformed key": {"authorization": f"Bearer {CANARY}"},
        "a key of other characters": {"authorization": "Bearer schlüssel".encode()},
        "a mistyped key": {"x-api-key": mistyped(key)},
        "a key cut short": {"x-api-key": key[:-1]},
        "a key in capitals": {"x-api-key": key.upper()},
        "an expired key": gateway.tenants.authorization("expired"),
        "a key that is not valid yet": gateway.tenants.authorization("early"),
    }
    return table[name]


REFUSED = {
    "no key": ASKING,
    "an empty key": ASKING,
    "a key without its scheme": ASKING,
    "another scheme": ASKING,
    "a scheme without a key": ASKING,
    "a key in a header that nobody reads": ASKING,
    "two keys": ASKING,
    "a key twice": ASKING,
    "a key after another": ASKING,
    "a key twice in a field of its own": ASKING,
    "an unknown key": INVALID,
    "a malformed key": INVALID,
    "a key of other characters": INVALID,
    "a mistyped key": INVALID,
    "a key cut short": INVALID,
    "a key in capitals": INVALID,
    "an expired key": INVALID,
    "a key that is not valid yet": INVALID,
}


@pytest.mark.parametrize(("name", "challenge"), REFUSED.items(), ids=REFUSED)
async def test_without_a_valid_key_nobody_comes_in(staged: RunningGateway, name: str, challenge: str) -> None:
    for path in PROTECTED:
        answer = await staged.client.post(path, json={"model": CANARY}, headers=headers(staged, name))
        assert_problem(answer, 401, "unauthenticated")
        assert answer.headers["www-authenticate"] == challenge
        assert not [key for key in staged.tenants.keys.values() if key in answer.text]


async def test_a_key_in_the_address_is_not_read(staged: RunningGateway) -> None:
    answer = await staged.client.get(f"/v1/models?api_key={staged.tenants.keys['open']}")
    assert_problem(answer, 401, "unauthenticated")


async def test_a_key_without_the_scope_is_known_and_forbidden(staged: RunningGateway) -> None:
    for path in PROTECTED:
        assert_problem(await staged.get(path, tenant="scopeless"), 403, "forbidden")


@pytest.mark.parametrize("form", ["Bearer {key}", "bearer {key}", "BEARER  {key}"], ids=["plain", "lower", "upper"])
async def test_a_bearer_key_is_taken(staged: RunningGateway, form: str) -> None:
    field = form.format(key=staged.tenants.keys["open"])
    assert (await staged.client.get("/v1/models", headers={"authorization": field})).status_code == 200


async def test_a_key_in_x_api_key_is_taken_and_may_stand_in_both(staged: RunningGateway) -> None:
    alone = {"x-api-key": staged.tenants.keys["open"]}
    assert (await staged.client.get("/v1/models", headers=alone)).status_code == 200
    both = {**alone, **staged.tenants.authorization("open")}
    assert (await staged.client.get("/v1/models", headers=both)).status_code == 200


@pytest.mark.parametrize("body", ["Content-Length: 1000000", "Transfer-Encoding: chunked", "Content-Length: 99999999999"])
@pytest.mark.parametrize("expect", [(), ("Expect: 100-continue",)], ids=["unasked", "asked"])
async def test_a_strangers_body_is_not_waited_for(staged: RunningGateway, body: str, expect: tuple[str, ...]) -> None:
    async with connected(staged.address) as line:
        await line.send(head("POST /v1/classify", "Content-Type: application/json", body, *expect))
        assert_problem(await line.answer(), 401, "unauthenticated")


async def test_a_strangers_body_may_not_drip_for_ever(staged: RunningGateway) -> None:
    async with connected(staged.address) as line:
        await line.send(head("POST /v1/classify", "Content-Type: application/json", "Transfer-Encoding: chunked"))
        assert_problem(await line.answer(), 401, "unauthenticated")
        async with line.dripping(b"1\r\n \r\n"):
            assert await line.is_closed()


HOSTS = {"conch/livez?": 400, "conch/docs/#": 400, "livez": 401, "conch:8080/livez": 400}


@pytest.mark.parametrize(("host", "status"), HOSTS.items())
async def test_the_host_field_opens_no_door(staged: RunningGateway, host: str, status: int) -> None:
    async with connected(staged.address) as line:
        await line.send(head("GET /v1/models", host=host))
        assert (await line.answer()).status_code == status


@pytest.mark.parametrize("path", ["/livez/../v1/models", "/docs/../v1/models", "/docs/%2e%2e/v1/models", "/%76%31/models"])
async def test_a_crooked_path_opens_no_door(staged: RunningGateway, path: str) -> None:
    async with connected(staged.address) as line:
        await line.send(head(f"GET {path}"))
        answer = await line.answer()
    assert answer.status_code in (401, 404), answer.text


@pytest.mark.parametrize("path", ["/livez", "/readyz", "/docs", "/redoc", "/openapi.json"])
async def test_some_pages_are_public(staged: RunningGateway, path: str) -> None:
    assert (await staged.client.get(path)).status_code == 200
