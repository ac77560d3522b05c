"""Every known way to forge a token, and tokens that are genuine but not for us, with the reason that each is refused for."""

import base64
import hmac
import json
from collections.abc import Callable
from functools import partial
from typing import Any

from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from tests.fakes.issuer import FakeIssuer, jwk, private_key


def b64(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def by_hand(idp: FakeIssuer, header: dict[str, Any], sign: Callable[[bytes], bytes], **claims: Any) -> str:
    signed = f"{b64(json.dumps(header).encode())}.{b64(json.dumps(idp.claims(**claims)).encode())}"
    idp.minted.append(f"{signed}.{b64(sign(signed.encode()))}")
    return idp.minted[-1]


def unsigned(idp: FakeIssuer, alg: str) -> str:
    return by_hand(idp, {"alg": alg, "typ": "JWT", "kid": "k1"}, lambda _: b"")


def signed_with_the_public_key(idp: FakeIssuer, secret: bytes) -> str:
    header = {"alg": "HS256", "typ": "JWT", "kid": "k1"}
    return by_hand(idp, header, lambda text: hmac.digest(secret, text, "sha256"))


def public_pem() -> bytes:
    key: bytes = private_key("k1").public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return key


def public_jwk() -> bytes:
    return json.dumps(jwk("k1")).encode()


def own_key(idp: FakeIssuer, parameter: str) -> str:
    """Signed by a key that the token brings along, or says where to fetch."""
    values = {"jwk": jwk("mine"), "jku": idp.url, "x5u": idp.url, "x5c": [b64(b"certificate")]}
    return idp.sign(idp.claims(), private_key("mine"), "RS256", {"kid": "k1", parameter: values[parameter]})


def own_key_of_a_good_token(idp: FakeIssuer, parameter: str) -> str:
    return idp.token(header={parameter: {"jwk": jwk("k1"), "jku": idp.url, "x5u": idp.url, "x5c": []}[parameter]})


def spliced(idp: FakeIssuer) -> str:
    """The signature of one token under the claims of another."""
    mine, theirs = idp.token(tenant="mine"), idp.token(tenant="theirs")
    return ".".join([*theirs.split(".")[:2], mine.split(".")[2]])


def now(idp: FakeIssuer) -> int:
    return int(idp.claims()["iat"])


PARAMETERS = ("jwk", "jku", "x5u", "x5c")
ATTACKS: dict[str, tuple[Callable[[FakeIssuer], str], str]] = {
    "alg none": (lambda idp: unsigned(idp, "none"), "token_untrusted"),
    "alg None": (lambda idp: unsigned(idp, "None"), "token_untrusted"),
    "alg NONE": (lambda idp: unsigned(idp, "NONE"), "token_untrusted"),
    "alg empty": (lambda idp: unsigned(idp, ""), "token_untrusted"),
    "alg a list": (lambda idp: by_hand(idp, {"alg": ["RS256"], "kid": "k1"}, lambda _: b""), "token_untrusted"),
    "no alg": (lambda idp: by_hand(idp, {"kid": "k1"}, lambda _: b""), "token_untrusted"),
    "no signature": (lambda idp: unsigned(idp, "RS256"), "token_forged"),
    "HS256 with the public key in PEM": (lambda idp: signed_with_the_public_key(idp, public_pem()), "token_untrusted"),
    "HS256 with the public key in JWK": (lambda idp: signed_with_the_public_key(idp, public_jwk()), "token_untrusted"),
    "HS256 with nothing": (lambda idp: signed_with_the_public_key(idp, b""), "token_untrusted"),
    "another key": (lambda idp: idp.sign(idp.claims(), private_key("mine"), "RS256", {"kid": "k1"}), "token_forged"),
    "another algorithm": (lambda idp: idp.sign(idp.claims(), private_key("k1"), "RS384", {"kid": "k1"}), "token_untrusted"),
    "a listed algorithm that is not the key's": (
        lambda idp: idp.sign(idp.claims(), private_key("k1"), "PS256", {"kid": "k1"}),
        "token_forged",
    ),
    "a key of another form": (
        lambda idp: idp.sign(idp.claims(), private_key("k1", "ES256"), "ES256", {"kid": "k1"}),
        "token_forged",
    ),
    "a key that nobody published": (lambda idp: idp.token(kid="unpublished"), "token_forged"),
    "a kid that is a path": (
        lambda idp: by_hand(idp, {"alg": "RS256", "kid": "../../dev/null"}, lambda _: b""),
        "token_forged",
    ),
    "a kid without end": (lambda idp: by_hand(idp, {"alg": "RS256", "kid": "k" * 257}, lambda _: b""), "token_malformed"),
    "a kid that is a number": (lambda idp: by_hand(idp, {"alg": "RS256", "kid": 1}, lambda _: b""), "token_malformed"),
    **{f"its own key in {name}": (partial(own_key, parameter=name), "token_malformed") for name in PARAMETERS},
    **{
        f"a good token with {name}": (partial(own_key_of_a_good_token, parameter=name), "token_malformed")
        for name in PARAMETERS
    },
    "an unknown crit": (lambda idp: idp.token(header={"crit": ["exp"], "exp": 1}), "token_malformed"),
    "a crit that is empty": (lambda idp: idp.token(header={"crit": []}), "token_malformed"),
    "a payload beside the token": (
        lambda idp: by_hand(idp, {"alg": "RS256", "kid": "k1", "b64": False, "crit": ["b64"]}, lambda _: b""),
        "token_malformed",
    ),
    "an id token's type": (lambda idp: idp.token(header={"typ": "id+jwt"}), "token_malformed"),
    "a logout token's type": (lambda idp: idp.token(header={"typ": "logout+jwt"}), "token_malformed"),
    "another issuer": (lambda idp: idp.token(iss="https://evil.example"), "token_untrusted"),
    "an issuer with a slash more": (lambda idp: idp.token(iss=f"{idp.name}/"), "token_untrusted"),
    "issuers in a list": (lambda idp: by_hand(idp, {"alg": "RS256"}, lambda _: b"", iss=[idp.name]), "token_untrusted"),
    "no issuer": (lambda idp: idp.token(iss=None), "token_untrusted"),
    "another audience": (lambda idp: idp.token(aud="other"), "token_untrusted"),
    "an audience that begins like ours": (lambda idp: idp.token(aud=["conch.evil", "conc"]), "token_untrusted"),
    "audiences that are no words": (lambda idp: idp.token(aud=[{"conch": 1}]), "token_untrusted"),
    "no audience": (lambda idp: idp.token(aud=None), "token_malformed"),
    "expired": (lambda idp: idp.token(exp=now(idp) - 60), "token_expired"),
    "no expiry": (lambda idp: idp.token(exp=None), "token_malformed"),
    "an expiry in words": (lambda idp: idp.token(exp="9999999999"), "token_malformed"),
    "an expiry that is true": (lambda idp: idp.token(exp=True), "token_expired"),
    "an expiry without end": (lambda idp: idp.token(exp=float("inf")), "token_malformed"),
    "an expiry that is no number": (lambda idp: idp.token(exp=float("nan")), "token_malformed"),
    "not yet": (lambda idp: idp.token(nbf=now(idp) + 600), "token_early"),
    "issued in the future": (lambda idp: idp.token(iat=now(idp) + 600), "token_early"),
    "no tenant": (lambda idp: idp.token(tenant=None), "token_tenant"),
    "tenants in a list": (lambda idp: idp.token(tenant=["open"]), "token_tenant"),
    "scopes that are a number": (lambda idp: idp.token(scope=7), "token_malformed"),
    "scopes that are a mapping": (lambda idp: idp.token(scope={"infer": True}), "token_malformed"),
    "a subject that is a number": (lambda idp: idp.token(sub=7), "token_malformed"),
    "another token's signature": (spliced, "token_forged"),
    "two parts": (lambda idp: idp.token().rpartition(".")[0], "token_malformed"),
    "five parts": (lambda idp: f"{idp.token()}..", "token_malformed"),
    "no text": (lambda idp: "..", "token_malformed"),
    "no JSON": (lambda idp: f"{b64(b'{')}.{b64(b'{')}.{b64(b'{')}", "token_malformed"),
    "a header that is a list": (lambda idp: f"{b64(b'[]')}.{b64(b'{}')}.", "token_malformed"),
    "a payload that is a list": (lambda idp: f"{b64(b'{}')}.{b64(b'[]')}.", "token_malformed"),
    "nesting without end": (lambda idp: f"{b64(b'[' * 9000)}.{b64(b'{}')}.", "token_malformed"),
    "other letters": (lambda idp: "é.é.é", "token_malformed"),
}
