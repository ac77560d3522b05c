"""Tokens at a running gateway, with the issuers' keys served over HTTP, or not served."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from time import monotonic
from typing import Any

import httpx
import pytest
import pytest_asyncio
import yaml

from tests.edge.raw import connected, head
from tests.fakes.issuer import FakeIssuer, jwk, private_key
from tests.fakes.otlp import Sink, listening
from tests.fakes.triton import FakeTriton
from tests.gateway.problems import CANARY, assert_problem
from tests.gateway.process import RunningGateway, conch
from tests.gateway.tenants import Tenants
from tests.peers import Redis, eventually

Start = Callable[..., Awaitable[RunningGateway]]
INVALID = 'Bearer realm="conch", error="invalid_token"'


@pytest.fixture(scope="module")
def idp() -> Iterator[FakeIssuer]:
    idp = FakeIssuer()
    yield idp
    idp.vanish()


@pytest.fixture(scope="module")
def sink() -> Iterator[Sink]:
    with listening() as sink:
        yield sink


@pytest.fixture(scope="module")
def trust(
    redis: Redis, _stage: FakeTriton, staged_routes: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., Awaitable[RunningGateway]]:
    """`await trust(start, *issuers)`: a gateway with tenants of its own."""

    async def trust(start: Start, *issuers: FakeIssuer, **settings: str) -> RunningGateway:
        folder = tmp_path_factory.mktemp("tokens")
        (folder / "tokens.yaml").write_text(yaml.safe_dump({"issuers": {issuer.name: issuer.entry() for issuer in issuers}}))
        return await start(
            TRITON=_stage.address,
            REDIS_URL=redis.url,
            ROUTES_FILE=str(staged_routes),
            TENANTS_FILE=str(Tenants.write(folder / "tenants.yaml").path),
            TOKENS_FILE=str(folder / "tokens.yaml"),
            **settings,
        )

    return trust


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def trusting(gateways: Start, trust: Start, idp: FakeIssuer, sink: Sink) -> AsyncIterator[RunningGateway]:
    """When all is over, no token and no part of one may be in its log, its metrics or its spans."""
    otel = {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": sink.url, "OTEL_BSP_SCHEDULE_DELAY": "100"}
    gateway = await trust(gateways, idp, LOG_LEVEL="debug", **otel)
    yield gateway
    metrics = (await gateway.client.get(f"{gateway.admin}/metrics")).text
    await gateway.peer.stop()  # while there is still somebody to send the last spans to
    told = await gateway.logged() + metrics + repr(sink.spans)
    assert sink.spans
    assert [part for part in parts(idp) if part in told] == []
    assert CANARY not in told


def parts(*issuers: FakeIssuer) -> set[str]:
    """Of a token the head alone is no secret."""
    return {part for issuer in issuers for token in issuer.minted for part in token.split(".")[1:] if len(part) > 20}


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


async def models(gateway: RunningGateway, token: str) -> httpx.Response:
    answer = await gateway.client.get("/v1/models", headers=bearer(token))
    assert token not in answer.text + str(answer.headers)
    return answer


async def test_whoever_brings_a_token_is_the_tenant_that_it_names(trusting: RunningGateway, idp: FakeIssuer) -> None:
    token = idp.token(tenant="some")
    for _ in range(2):
        answer = await models(trusting, token)
        assert answer.status_code == 200
        assert [card["id"] for card in answer.json()["data"]] == ["vectors"], "the models that this tenant may see"
    body = {"model": "words", "inputs": [CANARY]}
    hidden = await trusting.client.post("/v1/classify", json=body, headers=bearer(token))
    assert_problem(hidden, 404, "unknown_model")
    request_id = answer.headers["x-request-id"]
    await eventually(lambda: request_id in trusting.log())
    line = json.loads(next(line for line in trusting.log().splitlines() if request_id in line))
    assert (line["tenant"], line["key"]) == ("some", idp.name)


async def test_the_tenant_s_own_limits_hold_for_its_tokens(trusting: RunningGateway, idp: FakeIssuer) -> None:
    token = idp.token(tenant="tight-by-token")
    body = {"model": "words", "inputs": ["a"]}
    answers = [await trusting.client.post("/v1/classify", json=body, headers=bearer(token)) for _ in range(3)]
    assert [answer.status_code for answer in answers] == [200, 200, 429]


@pytest.mark.parametrize(
    ("tenant", "scope"),
    [("open", "openid"), ("open", None), ("open", "admin"), ("scopeless", "infer"), ("scopeless", "infer admin")],
)
async def test_a_token_allows_no_more_than_itself_and_its_tenant(
    trusting: RunningGateway, idp: FakeIssuer, tenant: str, scope: str | None
) -> None:
    assert_problem(await models(trusting, idp.token(tenant=tenant, scope=scope)), 403, "forbidden")


REFUSED: dict[str, dict[str, Any]] = {
    "expired": {"exp": 1},
    "not yet": {"nbf": 2**40},
    "of another issuer": {"iss": "https://evil.example"},
    "for another audience": {"aud": "other"},
    "for no tenant that there is": {"tenant": CANARY},
    "for no tenant": {"tenant": None},
    "with an address for its key": {"header": {"jku": "http://127.0.0.1:1/" + CANARY}},
    "critical": {"header": {"crit": ["exp"], "exp": 1}},
    "with an unknown key": {"kid": CANARY},
}


@pytest.mark.parametrize("name", REFUSED)
async def test_a_token_that_is_not_good_is_refused_without_a_word_of_it(
    trusting: RunningGateway, idp: FakeIssuer, name: str
) -> None:
    before = await trusting.count("conch_auth_failures_total")
    answer = await models(trusting, idp.token(**REFUSED[name]))
    assert_problem(answer, 401, "unauthenticated")
    assert answer.headers["www-authenticate"] == INVALID
    assert await trusting.count("conch_auth_failures_total") == before + 1


async def test_a_token_is_forged_and_refused_and_the_good_one_goes_on(trusting: RunningGateway, idp: FakeIssuer) -> None:
    good = idp.token()
    assert (await models(trusting, good)).status_code == 200
    header, payload, signature = good.split(".")
    forged = idp.token(tenant="some").split(".")[1]
    for token in (f"{header}.{forged}.{signature}", f"{header}.{payload}.{signature[::-1]}", f"{header}.{payload}."):
        assert_problem(await models(trusting, token), 401, "unauthenticated")
    assert (await models(trusting, good)).status_code == 200


async def test_a_token_of_100_kb_is_refused_with_its_head(trusting: RunningGateway, idp: FakeIssuer) -> None:
    token = idp.token(filling="a" * 75_000)
    assert len(token) > 100_000
    async with connected(trusting.address) as line:
        await line.send(head("GET /v1/models", f"Authorization: Bearer {token}"))
        assert_problem(await line.answer(), 431, "headers_too_large")


async def test_where_no_issuer_is_trusted_a_token_is_no_key(staged: RunningGateway, idp: FakeIssuer) -> None:
    assert_problem(await models(staged, idp.token()), 401, "unauthenticated")
    assert (await staged.status())["issuers"] == {}


async def test_a_new_key_is_taken_at_once_a_storm_of_unknown_ones_fetches_once_and_keys_outlive_their_issuer(
    start_gateway: Start, trust: Start
) -> None:
    idp = FakeIssuer()
    gateway = await trust(start_gateway, idp)
    await eventually(lambda: idp.asked == 1)
    idp.keys = [jwk("k1"), jwk("k2")]
    assert (await models(gateway, idp.token(kid="k2"))).status_code == 200
    assert idp.asked == 2

    before = monotonic()
    storm = await asyncio.gather(*(models(gateway, unknown(idp, at)) for at in range(100)))
    assert {answer.status_code for answer in storm} == {401}
    assert idp.asked == 2 or monotonic() - before > 25, "one fetch for unknown keys in half a minute"

    idp.vanish()
    assert (await models(gateway, idp.token(kid="k1"))).status_code == 200
    assert_problem(await models(gateway, unknown(idp, 0)), 401, "unauthenticated")


def unknown(idp: FakeIssuer, at: int) -> str:
    return idp.sign(idp.claims(), private_key("mine"), "RS256", {"kid": f"unknown-{at}"})


async def test_an_issuer_that_is_away_is_told_apart_from_a_bad_token_and_keeps_nobody_else_waiting(
    start_gateway: Start, trust: Start, idp: FakeIssuer
) -> None:
    absent = FakeIssuer("https://absent.example")
    absent.keys = [{**jwk("absent"), "kid": "k1"}]
    absent.vanish()
    gateway = await trust(start_gateway, idp, absent)
    token = absent.sign(absent.claims(), private_key("absent"), "RS256", {"kid": "k1"})
    away = await models(gateway, token)
    assert_problem(away, 503, "unavailable")
    assert 1 <= int(away.headers["retry-after"]) <= 5
    assert (await models(gateway, idp.token())).status_code == 200
    assert await gateway.count("conch_auth_failures_total") == 0

    asked, held = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def hold(request: BaseHTTPRequestHandler) -> None:
        loop.call_soon_threadsafe(asked.set)
        held.wait(10)
        absent.serve(request)

    absent.answer = hold
    absent.appear()
    await asked.wait()  # it is tried again by itself
    waiting = asyncio.create_task(models(gateway, token))
    for at in range(3):
        assert (await models(gateway, idp.token(jti=str(at)))).status_code == 200
    assert not waiting.done()
    held.set()
    assert (await waiting).status_code == 200
    crossed = idp.sign(absent.claims(), private_key("k1"), "RS256", {"kid": "k1"})
    assert_problem(await models(gateway, crossed), 401, "unauthenticated")
    status = (await gateway.status())["issuers"]
    assert (status[idp.name]["failures"], status[absent.name]["keys"]) == (0, 1)
    assert status[absent.name]["failures"] >= 1
    absent.vanish()


async def test_a_tenant_that_is_removed_is_gone_for_the_tokens_that_are_remembered(
    start_gateway: Start, trust: Start, idp: FakeIssuer
) -> None:
    gateway = await trust(start_gateway, idp)
    token = idp.token(tenant="first")
    assert (await models(gateway, token)).status_code == 200
    file = Path(gateway.peer.part.environment["CONCH_TENANTS_FILE"])
    content = yaml.safe_load(file.read_text())
    del content["tenants"]["first"]
    file.write_text(yaml.safe_dump(content))
    async with asyncio.timeout(10):
        while (await models(gateway, token)).status_code == 200:
            await asyncio.sleep(0.05)
    assert_problem(await models(gateway, token), 401, "unauthenticated")
    assert (await models(gateway, idp.token(tenant="open"))).status_code == 200


async def test_issuers_come_and_go_while_running_and_a_bad_file_changes_nothing(start_gateway: Start, trust: Start) -> None:
    first, second = FakeIssuer("https://first.example"), FakeIssuer("https://second.example")
    gateway = await trust(start_gateway, first)
    file = Path(gateway.peer.part.environment["CONCH_TOKENS_FILE"])

    def write(*issuers: FakeIssuer, **fields: object) -> None:
        file.write_text(yaml.safe_dump({"issuers": {issuer.name: issuer.entry(**fields) for issuer in issuers}}))

    async def becomes(token: str, status: int) -> None:
        async with asyncio.timeout(2):
            while (await models(gateway, token)).status_code != status:
                await asyncio.sleep(0.05)

    await becomes(first.token(), 200)
    assert_problem(await models(gateway, second.token()), 401, "unauthenticated")
    write(first, second)
    await becomes(second.token(), 200)
    assert (first.asked, second.asked) == (1, 1), "keys that are there are not asked for again"

    write(first, second, algorithms=["HS256"])
    await eventually(lambda: "issuers not reloaded" in gateway.log())
    assert f"{file}:4: issuers.{first.name}.algorithms[0]: should be" in gateway.log()
    for idp in (first, second):
        assert (await models(gateway, idp.token())).status_code == 200
    told = (await gateway.status())["files"]["tokens"]
    assert (told["generation"], told["failures"], f"{file}:4: " in told["refused"]) == (2, 1, True)
    code, _, err = await conch("check", **gateway.peer.part.environment)
    assert (code, f"{file}:4: issuers" in err) == (1, True)

    remembered = first.token()
    await becomes(remembered, 200)
    write(second)
    await becomes(remembered, 401)
    assert (await models(gateway, second.token())).status_code == 200
    async with asyncio.timeout(5):
        while await gateway.count("conch_config_generation", file="tokens") < 3:
            await asyncio.sleep(0.05)
    issuers = {sample.labels["issuer"] for sample in await gateway.samples() if sample.name == "conch_jwks_failures"}
    assert issuers == {second.name}, "a series of one who left is gone"
    for idp in (first, second):
        idp.vanish()


async def test_a_file_that_can_not_be_used_is_told_by_line_and_keeps_a_gateway_from_starting(
    staged: RunningGateway, tmp_path: Path
) -> None:
    file = tmp_path / "tokens.yaml"
    file.write_text("issuers:\n  idp:\n    audiences: [conch]\n    algorithms: [HS256]\n    jwks_url: https://idp/\n")
    settings = {**staged.peer.part.environment, "CONCH_TOKENS_FILE": str(file)}
    for command in (("serve",), ("check",), ("check", "--tokens", str(file))):
        code, _, err = await conch(*command, **settings)
        assert (code, err.count("error: ")) == (1, 1), err
        assert f"{file}:4: issuers.idp.algorithms[0]: should be" in err
