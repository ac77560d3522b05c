"""`tokens.yaml`: what it must say, and that each fault is told with its line."""

from pathlib import Path

import pytest

from app.tenancy.issuer import Issuer, read_issuers
from app.tenancy.tenants_file import TenantsInvalid

GOOD = """
issuers:
  https://idp.example:
    audiences: [conch]
    algorithms: [RS256]
    jwks_url: https://idp.example/jwks
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "tokens.yaml"


def test_an_issuer_needs_audiences_algorithms_and_an_address(file: Path) -> None:
    file.write_text(GOOD)
    assert read_issuers(file) == (
        Issuer("https://idp.example", frozenset({"conch"}), frozenset({"RS256"}), "https://idp.example/jwks"),
    )


def test_what_an_issuer_may_say_can_be_named_otherwise(file: Path) -> None:
    fields = ("tenants: [acme-*]", "tenant_claim: t", "scope_claim: scp", "leeway_seconds: 0")
    file.write_text(GOOD + "".join(f"    {field}\n" for field in fields))
    [issuer] = read_issuers(file)
    assert (issuer.tenant_claim, issuer.scope_claim, issuer.leeway) == ("t", "scp", 0)
    assert [issuer.may_vouch_for(tenant) for tenant in ("acme-1", "acme", "rival")] == [True, False, False]


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:8000/jwks", "http://localhost/jwks", "http://[::1]:80/jwks", "https://idp:8443/"]
)
def test_an_address_is_safe_by_tls_or_because_it_is_here(file: Path, url: str) -> None:
    file.write_text(GOOD.replace("https://idp.example/jwks", url))
    assert read_issuers(file)[0].jwks_url == url


ADDRESS = "jwks_url: must be an https:// URL"
FAULTS = [
    ("[RS256]", "[RS256, HS256]", 5, "algorithms[1]: should be"),
    ("[RS256]", "[none]", 5, "algorithms[0]: should be"),
    ("[RS256]", "[rs256]", 5, "algorithms[0]: should be"),
    ("[RS256]", "[]", 5, "algorithms: "),
    ("[conch]", "[]", 4, "audiences: "),
    ("[conch]", "conch", 4, "audiences: should be a list"),
    ("    audiences: [conch]\n", "", 3, "audiences: is missing"),
    ("https://idp.example/jwks", "http://idp.example/jwks", 6, ADDRESS),
    ("https://idp.example/jwks", "http://127.0.0.1.evil.example/jwks", 6, ADDRESS),
    ("https://idp.example/jwks", "http://127.0.0.1@evil.example/jwks", 6, ADDRESS),
    ("https://idp.example/jwks", "https://user:hunter2@idp.example/jwks", 6, ADDRESS),
    ("https://idp.example/jwks", "file:///etc/passwd", 6, ADDRESS),
    ("https://idp.example/jwks", "https://[::1", 6, "jwks_url: must be a URL"),
    ("https://idp.example/jwks", "https://idp.example:port/", 6, "jwks_url: must be a URL"),
    ("jwks_url", "jwks_uri", 6, "jwks_uri: is not a field known here; did you mean jwks_url?"),
    ("jwks_url:", "leeway_seconds: 301\n    jwks_url:", 6, "leeway_seconds: "),
    ("issuers:", "issuer:", 2, "issuer: is not a field known here; did you mean issuers?"),
    (GOOD, "issuers: {}", 1, "issuers: "),
    (GOOD, "", 0, "the file is empty"),
    (GOOD, "issuers: [", 2, "is not YAML"),
]


@pytest.mark.parametrize(("part", "instead", "line", "words"), FAULTS)
def test_a_fault_is_told_by_line_and_field_and_no_password_is_repeated(
    file: Path, part: str, instead: str, line: int, words: str
) -> None:
    assert part in GOOD
    file.write_text(GOOD.replace(part, instead, 1))
    with pytest.raises(TenantsInvalid) as caught:
        read_issuers(file)
    fault = next(fault for fault in caught.value.faults if words in str(fault))
    assert fault.line == line
    assert "hunter2" not in str(caught.value)


def test_a_file_that_is_not_there_is_a_fault(file: Path) -> None:
    with pytest.raises(TenantsInvalid, match="can't be read"):
        read_issuers(file)
