"""What a token grants, and why one grants nothing. No library of the tokens' own is needed to know this."""

from dataclasses import dataclass
from typing import Literal, Protocol

from app.tenancy.tenant import Principal, Tenant

Reason = Literal["token_malformed", "token_untrusted", "token_forged", "token_expired", "token_early", "token_tenant"]


class TokenRefused(Exception):
    """`sentence` is ours, and holds nothing of the token."""

    def __init__(self, reason: Reason, sentence: str) -> None:
        super().__init__(sentence)
        self.reason = reason
        self.sentence = sentence


class IssuerAway(Exception):
    """The keys of a token's issuer were never seen, so that nobody can say whether it is good."""

    def __init__(self, retry_after: int) -> None:
        super().__init__("the issuer's keys can't be fetched")
        self.retry_after = retry_after


@dataclass(frozen=True, slots=True)
class Grant:
    """What a token says and its issuer vouches for. Whether there is such a tenant is for each request to ask anew."""

    issuer: str
    tenant: str
    scopes: frozenset[str]

    def principal(self, tenant: Tenant) -> Principal:
        return Principal(tenant, self.issuer, self.scopes & tenant.scopes)


class Vouching(Protocol):
    """Tokens, as the edge sees them."""

    def remembered(self, token: bytes) -> Grant | None:
        """Of a token that was verified a moment ago. Costs a hash and a look-up."""
        ...

    async def verify(self, token: bytes) -> Grant:
        """Raises `TokenRefused` and `IssuerAway`. May wait for the issuer's keys, but only where they are not known."""
        ...
