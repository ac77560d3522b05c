"""`tokens.yaml`: who may issue tokens, and what of a token counts."""

from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from app.tenancy.tenants_file import Text, read_entry

Algorithm = Literal["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"]
"""None with a shared secret: who can check such a token can issue one."""

_LOOPBACK = {"localhost", "127.0.0.1", "::1"}


def _safe(url: str) -> str:
    """Who can change the keys on their way can issue tokens."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        raise ValueError("must be a URL") from None
    if not host or parts.username or not (parts.scheme == "https" or (parts.scheme == "http" and host in _LOOPBACK)):
        raise ValueError("must be an https:// URL, without a password (http:// only on this machine)")
    return url


class IssuerEntry(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    audiences: Annotated[list[Text], Field(min_length=1)]
    algorithms: Annotated[list[Algorithm], Field(min_length=1)]
    jwks_url: Annotated[str, AfterValidator(_safe)]
    tenants: Annotated[list[Text], Field(min_length=1)] = ["*"]
    tenant_claim: Text = "tenant"
    scope_claim: Text = "scope"
    leeway_seconds: Annotated[int, Field(strict=True, ge=0, le=300)] = 30


class IssuersEntry(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    issuers: Annotated[dict[Text, IssuerEntry], Field(min_length=1)]


@dataclass(frozen=True, slots=True)
class Issuer:
    """`name` is what its tokens say as `iss`, to the letter. It vouches for no tenant but those that `tenants` (globs) name."""

    name: str
    audiences: frozenset[str]
    algorithms: frozenset[str]
    jwks_url: str
    tenants: tuple[str, ...] = ("*",)
    tenant_claim: str = "tenant"
    scope_claim: str = "scope"
    leeway: int = 30

    def may_vouch_for(self, tenant: str) -> bool:
        return any(fnmatchcase(tenant, pattern) for pattern in self.tenants)


def read_issuers(path: Path) -> tuple[Issuer, ...]:
    """Raises `TenantsInvalid`."""
    _, entry = read_entry(path, IssuersEntry, IssuerEntry)
    return tuple(
        Issuer(
            name,
            frozenset(of.audiences),
            frozenset(of.algorithms),
            of.jwks_url,
            tuple(of.tenants),
            of.tenant_claim,
            of.scope_claim,
            of.leeway_seconds,
        )
        for name, of in entry.issuers.items()
    )
