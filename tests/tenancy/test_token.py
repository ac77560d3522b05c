"""Tokens: which are believed, and every way to forge one that is known of."""

import asyncio
import contextlib
import json
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from http.server import BaseHTTPRequestHandler
from time import monotonic
from typing import Any

import pytest
import pytest_asyncio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.tenancy.grant import Grant, TokenRefused
from app.tenancy.issuer import Issuer
from app.tenancy.token import Tokens
from tests.fakes.forgery import ATTACKS, b64, now
from tests.fakes.issuer import FakeIssuer, jwk, private_key
from tests.gateway.problems import CANARY

ALGORITHMS = ["RS256", "PS256", "RS512", "PS384", "ES256", "ES384", "ES512", "EdDSA"]


@pytest.fixture(scope="module")
def idp() -> Iterator[FakeIssuer]:
    idp = FakeIssuer()
    idp.keys = [*(jwk(algorithm, algorithm) for algorithm in ALGORITHMS), jwk("k1"), jwk("k1-of-another-form", "ES256")]
    yield idp
    idp.vanish()


def issuer(idp: FakeIssuer, **fields: Any) -> Issuer:
    given = {"audiences": frozenset({"conch"}), "algorithms": frozenset(ALGORITHMS), "jwks_url": idp.url}
    return Issuer(idp.name, **{**given, **fields})


@contextlib.asynccontextmanager
async def watching(*issuers: Issuer, clock: Callable[[], float] = monotonic) -> AsyncIterator[Tokens]:
    tokens = Tokens(issuers, clock)
    watch = asyncio.create_task(tokens.watch())
    try:
        yield tokens
    finally:
        watch.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await watch
        await tokens.close()


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def tokens(idp: FakeIssuer) -> AsyncIterator[Tokens]:
    async with watching(issuer(idp)) as tokens:
        yield tokens


async def reason(tokens: Tokens, token: str) -> str:
    with pytest.raises(TokenRefused) as caught:
        await tokens.verify(token.encode())
    assert CANARY not in str(caught.value)
    assert tokens.remembered(token.encode()) is None
    return caught.value.reason


@pytest.mark.parametrize("algorithm", ALGORITHMS)
async def test_a_token_of_each_algorithm_grants_what_it_says(idp: FakeIssuer, tokens: Tokens, algorithm: str) -> None:
    token = idp.token(kid=algorithm, algorithm=algorithm, tenant="acme", scope="infer openid")
    assert await tokens.verify(token.encode()) == Grant(idp.name, "acme", frozenset({"infer", "openid"}))


@pytest.mark.parametrize(
    ("scope", "granted"), [("infer admin", {"infer", "admin"}), (["infer"], {"infer"}), (None, set()), ("", set()), ([], set())]
)
async def test_scopes_are_words_or_a_list_and_nothing_where_there_are_none(
    idp: FakeIssuer, tokens: Tokens, scope: object, granted: set[str]
) -> None:
    assert (await tokens.verify(idp.token(scope=scope).encode())).scopes == granted


@pytest.mark.parametrize("typ", ["JWT", "jwt", "at+jwt", "application/at+jwt", ""])
async def test_the_types_of_access_tokens_are_taken(idp: FakeIssuer, tokens: Tokens, typ: str) -> None:
    assert await tokens.verify(idp.token(header={"typ": typ}).encode())


async def test_a_token_need_not_name_its_key_where_one_alone_can_be_meant(idp: FakeIssuer) -> None:
    nameless = {"kid": None}
    async with watching(issuer(idp, algorithms=frozenset({"ES384", "RS256"}))) as tokens:
        assert await tokens.verify(idp.token(kid="ES384", algorithm="ES384", header=nameless).encode())
        assert await reason(tokens, idp.token(header=nameless)) == "token_forged", "two keys are for RS256"


async def test_times_have_a_leeway_and_an_audience_may_be_one_of_several(idp: FakeIssuer, tokens: Tokens) -> None:
    now = idp.claims()["iat"]
    for claims in ({"exp": now - 20}, {"nbf": now + 20}, {"iat": now + 20}, {"aud": ["other", "conch"]}, {"exp": now + 0.5}):
        assert await tokens.verify(idp.token(**claims).encode())


@pytest.mark.parametrize(("forge", "why"), ATTACKS.values(), ids=ATTACKS)
async def test_no_forged_or_unfit_token_is_believed(
    idp: FakeIssuer, tokens: Tokens, forge: Callable[[FakeIssuer], str], why: str
) -> None:
    assert await reason(tokens, forge(idp)) == why


async def test_an_issuer_vouches_for_its_own_tenants_alone(idp: FakeIssuer) -> None:
    async with watching(
        issuer(idp, tenants=("acme-*",), tenant_claim="https://conch.example/tenant", scope_claim="scp")
    ) as tokens:
        claims: dict[str, Any] = {"https://conch.example/tenant": "acme-1", "scp": ["infer"], "scope": "admin"}
        good = idp.token(**claims)
        assert await tokens.verify(good.encode()) == Grant(idp.name, "acme-1", frozenset({"infer"}))
        assert (
            await reason(tokens, idp.token(**{**claims, "https://conch.example/tenant": "rival", "tenant": "acme-1"}))
            == "token_tenant"
        )


async def test_two_issuers_with_keys_of_one_name_are_not_mixed_up(idp: FakeIssuer) -> None:
    other = FakeIssuer("https://other.example")
    other.keys = [{**jwk("of another"), "kid": "k1"}]
    async with watching(issuer(idp), issuer(other)) as tokens:
        for at, kid in ((idp, "k1"), (other, "of another")):
            token = at.sign(at.claims(), private_key(kid), "RS256", {"kid": "k1"})
            assert (await tokens.verify(token.encode())).issuer == at.name
        crossed = idp.sign(other.claims(), private_key("k1"), "RS256", {"kid": "k1"})
        assert await reason(tokens, crossed) == "token_forged"
    other.vanish()


@settings(deadline=None, max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
async def test_a_token_with_any_character_changed_is_not_believed(idp: FakeIssuer, tokens: Tokens, data: st.DataObject) -> None:
    token = bytearray(idp.token(kid="ES256", algorithm="ES256").encode())
    before = bytes(token)
    for at in data.draw(st.sets(st.integers(0, len(token) - 1), min_size=1, max_size=3)):
        token[at] = data.draw(st.integers(0, 255))
    if bytes(token) != before:
        with pytest.raises(TokenRefused):
            await tokens.verify(bytes(token))


@settings(deadline=None, max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.binary(max_size=200) | st.lists(st.binary(max_size=60).map(b64).map(str.encode), min_size=3, max_size=3).map(b".".join)
)
async def test_whatever_is_sent_is_refused_and_never_a_fault_of_ours(tokens: Tokens, sent: bytes) -> None:
    with pytest.raises(TokenRefused):
        await tokens.verify(sent)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
CLAIM = st.sampled_from(["iss", "aud", "exp", "nbf", "iat", "sub", "jti", "tenant", "scope"])


@settings(deadline=None, max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(CLAIM, JSON, max_size=3), st.dictionaries(st.sampled_from(["typ", "kid", "alg"]), JSON, max_size=2))
async def test_a_signed_token_with_strange_claims_is_believed_or_refused_and_nothing_else(
    idp: FakeIssuer, tokens: Tokens, claims: dict[str, Any], header: dict[str, Any]
) -> None:
    payload = json.dumps({**idp.claims(), **claims}).encode()
    signed = f"{b64(json.dumps({'alg': 'EdDSA', 'kid': 'EdDSA', **header}).encode())}.{b64(payload)}"
    token = f"{signed}.{b64(private_key('EdDSA', 'EdDSA').sign(signed.encode()))}"
    with contextlib.suppress(TokenRefused):
        grant = await tokens.verify(token.encode())
        assert isinstance(grant.tenant, str)


async def test_a_verified_token_is_remembered_as_a_whole_and_no_longer_than_it_holds(idp: FakeIssuer) -> None:
    passed = 1000.0
    async with watching(issuer(idp), clock=lambda: passed) as tokens:
        presented = [idp.token(exp=now(idp) + seconds, jti=str(seconds)).encode() for seconds in (600, 20, -20)]
        for token in presented:
            assert tokens.remembered(token) is None
            await tokens.verify(token)
        for passed, known in ((1005.0, [True, True, False]), (1030.0, [True, False, False]), (1065.0, [False] * 3)):  # noqa: B007
            assert [tokens.remembered(token) is not None for token in presented] == known
        passed = 1001.0
        head = presented[0].rpartition(b".")[0]
        assert tokens.remembered(presented[0])
        assert [tokens.remembered(token) for token in (presented[0][:-1], head + b"." + b64(bytes(256)).encode())] == [None] * 2


async def test_what_is_remembered_is_bounded(idp: FakeIssuer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.tenancy.token._MOST_REMEMBERED", 2)
    async with watching(issuer(idp)) as tokens:
        first, second, third = (idp.token(jti=str(at)).encode() for at in range(3))
        await tokens.verify(first)
        await tokens.verify(second)
        assert tokens.remembered(first)
        await tokens.verify(third)
        assert [tokens.remembered(token) is not None for token in (first, second, third)] == [True, False, True]


async def test_issuers_are_replaced_and_what_is_known_of_those_that_stay_is_kept() -> None:
    staying, leaving, coming = FakeIssuer("https://stays"), FakeIssuer("https://leaves"), FakeIssuer("https://comes")
    async with watching(issuer(staying), issuer(leaving)) as tokens:
        coming.keys = [jwk("new")]
        stays, leaves, comes = staying.token().encode(), leaving.token().encode(), coming.token(kid="new").encode()
        for token in (stays, leaves):
            await tokens.verify(token)
        assert await reason(tokens, comes.decode()) == "token_untrusted"

        tokens.replace([issuer(staying), issuer(coming)])
        assert tokens.remembered(stays)
        assert await reason(tokens, leaves.decode()) == "token_untrusted"
        async with asyncio.timeout(10):
            while coming.asked == 0:  # before anybody needs them
                await asyncio.sleep(0.01)
        assert await tokens.verify(comes)

        tokens.replace([issuer(staying, audiences=frozenset({"other"})), issuer(coming, jwks_url=staying.url)])
        assert await reason(tokens, stays.decode()) == "token_untrusted"
        assert await reason(tokens, comes.decode()) == "token_forged"
    assert (staying.asked, coming.asked) == (2, 1), "only who publishes elsewhere is asked anew"
    for idp in (staying, leaving, coming):
        idp.vanish()


async def test_who_waits_for_keys_while_the_issuers_are_replaced_is_judged_by_the_new_ones() -> None:
    idp, asked, held = FakeIssuer(), threading.Event(), threading.Event()

    def hold(request: BaseHTTPRequestHandler) -> None:
        asked.set()
        held.wait(10)
        idp.serve(request)

    idp.answer = hold
    tokens = Tokens([issuer(idp)])
    token = idp.token()
    waiting = asyncio.create_task(tokens.verify(token.encode()))
    assert await asyncio.to_thread(asked.wait, 10)
    tokens.replace([issuer(idp, tenants=("nobody",))])
    held.set()
    with pytest.raises(TokenRefused) as refused:
        await waiting
    assert refused.value.reason == "token_tenant"
    assert tokens.remembered(token.encode()) is None
    await tokens.close()
    idp.vanish()
