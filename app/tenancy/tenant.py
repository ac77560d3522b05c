"""Who calls, and what they may do."""

from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Literal

OnRedisLoss = Literal["local", "open", "closed"]


@dataclass(frozen=True, slots=True)
class Quota:
    """The limits of one tenant, or of one tenant on one route. `None` means no limit of that kind.

    `on_redis_loss` says what holds while Redis can't decide: the same limits in the process (`local`), none (`open`), or a 503
    (`closed`). A kind named in `shadow` is counted and reported, never refused.
    """

    requests_per_second: float | None = None
    burst: int | None = None
    characters_per_minute: float | None = None
    characters_burst: int | None = None
    in_flight: int | None = None
    characters_per_day: int | None = None
    on_redis_loss: OnRedisLoss = "local"
    shadow: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Tenant:
    id: str
    plan: str
    models: tuple[str, ...]
    quota: Quota
    routes: dict[str, Quota] = field(default_factory=dict)
    """Quotas that hold on one route, beside (never instead of) the tenant's own."""
    priority: int = 2
    """1 is served first; also sent to Triton as its `priority`."""
    scopes: frozenset[str] = frozenset({"infer"})
    """The most that a key or a token of this tenant may allow."""

    def may_see(self, model: str) -> bool:
        return any(fnmatchcase(model, pattern) for pattern in self.models)


@dataclass(frozen=True, slots=True)
class Principal:
    """A tenant, the key it used (or the issuer of its token), and what that allows."""

    tenant: Tenant
    key_id: str
    scopes: frozenset[str]
