"""The tenants of the tests, with a key for each."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from app.tenancy.key import digest, new_key

PAST, FUTURE = "2020-01-01T00:00:00Z", "2099-01-01T00:00:00Z"

TIGHT = {"limits": {"requests_per_second": 1, "burst": 2}}
FRUGAL = {"limits": {"characters_per_day": 40}}
TENANTS: dict[str, dict[str, Any]] = {
    "open": {},
    "acme": {},  # as the documents call theirs
    "some": {"models": ["noop", "vec*"]},
    "expired": {"key": {"expires_at": PAST}},
    "early": {"key": {"not_before": FUTURE}},
    "scopeless": {"scopes": ["admin"]},
    "first": {"priority": 1},
    "roomy": {"limits": {"requests_per_second": 1000, "burst": 5000}},
    **dict.fromkeys(
        ("tight", "tight-too", "tight-as-well", "tight-at-once", "tight-by-token", "tight-for-openai", "tight-for-echo"), TIGHT
    ),
    "flooding": {"limits": {"requests_per_second": 0.01, "burst": 1}},
    "terse": {"limits": {"characters_per_minute": 600, "characters_burst": 500}},
    **dict.fromkeys(("frugal", "frugal-for-openai"), FRUGAL),
    "single": {"limits": {"in_flight": 1}},
    "slow-here": {"routes": {"noop": {"requests_per_second": 0.1, "burst": 1}}},
    "bulk-paced": {"limits": {"requests_per_second": 4, "burst": 2}},
    "bulk-terse": {"limits": {"characters_per_minute": 6000, "characters_burst": 60}},
    "bulk-single": {"limits": {"in_flight": 1}},
    "bulk-once": {"limits": {"requests_per_second": 0.01, "burst": 1}},
    "bulk-frugal": {"limits": {"characters_per_day": 20}},
    "weighed": {"limits": {"characters_per_minute": 600, "characters_burst": 500}},
    "cli-frugal": {"limits": {"characters_per_day": 25}},
    "exact": {"limits": {"requests_per_second": 1000, "burst": 5000, "on_redis_loss": "closed"}},
}


@dataclass(frozen=True, slots=True)
class Tenants:
    """`keys` are by the tenant's id."""

    path: Path
    keys: dict[str, str]

    @classmethod
    def write(cls, path: Path, entries: Mapping[str, dict[str, Any]] = TENANTS) -> "Tenants":
        tenants = cls(path, {name: new_key("test", name)[0] for name in entries})
        tenants.rewrite(entries)
        return tenants

    def rewrite(self, entries: Mapping[str, dict[str, Any]]) -> None:
        """The keys stay; who is not among the entries has none any more."""
        tenants = {name: _entry(of, digest(self.keys[name].encode()).hex()) for name, of in entries.items()}
        self.path.write_text(yaml.safe_dump({"plans": {"plain": {}}, "tenants": tenants}, sort_keys=False))

    def authorization(self, tenant: str) -> dict[str, str]:
        return {"authorization": f"Bearer {self.keys[tenant]}"}


def _entry(of: dict[str, Any], digest: str) -> dict[str, Any]:
    rest = {name: value for name, value in of.items() if name != "key"}
    return {"plan": "plain", "models": ["*"], **rest, "keys": [{"id": "k1", "sha256": digest, **of.get("key", {})}]}
