"""What of a published key set is used, and what is left out."""

import contextlib
import json
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from hypothesis import given, settings
from hypothesis import strategies as st
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

from app.tenancy.jwks import FetchFailed, key_ring
from tests.fakes.issuer import jwk, private_key

ALL = frozenset({"RS256", "PS256", "ES256", "ES384", "EdDSA"})


def ring(*entries: object, algorithms: frozenset[str] = ALL) -> set[tuple[str | None, str]]:
    return set(key_ring(json.dumps({"keys": entries}).encode(), algorithms))


def test_a_key_serves_the_algorithms_that_it_is_for_and_that_its_issuer_may_use() -> None:
    unnamed = {name: value for name, value in jwk("k1").items() if name != "alg"}
    assert ring(unnamed) == {(kid, algorithm) for kid in ("k1", None) for algorithm in ("RS256", "PS256")}
    assert ring(jwk("k1")) == {("k1", "RS256"), (None, "RS256")}
    assert ring(jwk("k1"), jwk("k2"), jwk("e", "ES384")) == {("k1", "RS256"), ("k2", "RS256"), ("e", "ES384"), (None, "ES384")}


def without(entry: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in entry.items() if name not in names}


SHORT = json.loads(RSAAlgorithm.to_jwk(rsa.generate_private_key(65537, 1024).public_key()))
UNFIT: dict[str, object] = {
    "a secret": {"kty": "oct", "k": "c2VjcmV0", "kid": "k1", "alg": "HS256"},
    "a short RSA key": {**SHORT, "kid": "k1"},
    "for encryption": jwk("k1", use="enc"),
    "for wrapping": jwk("k1", key_ops=["wrapKey"]),
    "of another algorithm": jwk("k1", alg="HS256"),
    "of no algorithm that is used": jwk("k1", alg="RSA-OAEP"),
    "of a kind that its algorithm is not": {**jwk("k1", "ES256"), "alg": "RS256"},
    "of another curve": {**jwk("k1", "ES256"), "crv": "secp256k1"},
    "a point beside its curve": {**jwk("k1", "ES256"), "x": jwk("k2", "ES256")["x"]},
    "incomplete": without(jwk("k1"), "n"),
    "of no kind": without(jwk("k1"), "kty"),
    "a name that is a number": {**jwk("k1"), "kid": 1},
    "a modulus that is a number": {**jwk("k1"), "n": 7},
    "not a mapping": "k1",
}


@pytest.mark.parametrize("name", UNFIT)
def test_a_key_that_is_not_fit_is_left_out(name: str) -> None:
    assert ring(UNFIT[name], jwk("good", "EdDSA")) == {("good", "EdDSA"), (None, "EdDSA")}


@pytest.mark.parametrize(
    ("algorithm", "kind"),
    [("RS256", RSAAlgorithm), ("ES256", ECAlgorithm), ("EdDSA", OKPAlgorithm)],
    ids=lambda value: str(value),
)
def test_a_private_key_that_an_issuer_publishes_is_used_as_a_public_one(algorithm: str, kind: Any) -> None:
    entry = {**json.loads(kind.to_jwk(private_key("k1", algorithm))), "kid": "k1", "use": "sig"}
    assert "d" in entry
    key = key_ring(json.dumps({"keys": [without(entry, "key_ops")]}).encode(), frozenset({algorithm}))["k1", algorithm]
    assert not hasattr(key.key, "sign")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=9),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["kty", "n", "e", "crv", "x", "y", "alg"]), inner)
    ),
    max_leaves=5,
)


@settings(deadline=None, max_examples=300)
@given(
    st.sampled_from(["RS256", "ES256", "EdDSA"]),
    st.dictionaries(st.sampled_from(["kty", "n", "e", "crv", "x", "y", "alg", "use", "key_ops", "kid"]), JSON, max_size=3),
)
def test_no_key_set_is_too_strange_to_be_told_good_or_bad(algorithm: str, members: dict[str, Any]) -> None:
    with contextlib.suppress(FetchFailed):
        assert ring({**jwk("k1", algorithm), **members})
