"""The demo tenant: its key, the tenants file that knows it, and a first request."""

import json
import os
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import yaml

from app.local.address import Address
from app.local.home import Home
from app.local.trouble import Trouble
from app.tenancy.key import KeyMalformed, KeyMistyped, digest, new_key, read_key

TENANT = "demo"
BODY = {"model": "sentiment", "inputs": ["I love it", "It never worked"]}
HEAD = """\
# Made from config/tenants.yaml, with the demo key. Yours to edit, also while the stack runs; remove it to have it made anew.
"""


@dataclass(frozen=True, slots=True)
class Request:
    """The first request that a newcomer makes, and that we make for them."""

    listen: Address
    key: str

    def curl(self) -> str:
        headers = [part for name, value in self._headers().items() for part in ("-H", f"{name}: {value}")]
        return shlex.join(["curl", "-sS", self._url, *headers, "-d", json.dumps(BODY)])

    async def send(self) -> str:
        """The answer as it came, or in a few words why there was none."""
        try:
            async with httpx.AsyncClient(trust_env=False, timeout=30) as client:
                answer = await client.post(self._url, headers=self._headers(), content=json.dumps(BODY))
        except httpx.HTTPError as error:
            return f"no answer ({type(error).__name__})"
        return answer.text if answer.is_success else f"{answer.status_code} {answer.text}"

    @property
    def _url(self) -> str:
        return f"{self.listen.url}/v1/classify"

    def _headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.key}", "Content-Type": "application/json"}


def demo_key(home: Home) -> str:
    """The key of last time, or a new one; only its owner may read the file."""
    try:
        text = home.key.read_text().strip()
        read_key(text)
    except (FileNotFoundError, KeyMalformed, KeyMistyped):
        text, _ = new_key("local", TENANT)
        home.key.unlink(missing_ok=True)
        with os.fdopen(os.open(home.key, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(f"{text}\n")
    return text


def write_tenants(home: Home, template: Path, key: str) -> None:
    """Leaves a file that already knows the key as it is."""
    sha256 = digest(key.encode()).hex()
    if home.tenants.exists() and sha256 in home.tenants.read_text():
        return
    tenants = _read(home.tenants if home.tenants.exists() else template)
    _tenant(tenants)["keys"] = [{"id": TENANT, "sha256": sha256}]
    aside = home.tenants.with_suffix(".new")
    aside.write_text(HEAD + yaml.safe_dump(tenants, sort_keys=False))
    aside.replace(home.tenants)


def _read(file: Path) -> dict[str, Any]:
    try:
        tenants = yaml.safe_load(file.read_text())
    except (OSError, yaml.YAMLError) as error:
        raise Trouble(f"The tenants in {file} can't be read: {error}", "Mend the file, or get it back from git.") from error
    if not isinstance(tenants, dict) or not tenants.get("plans"):
        raise Trouble(f"{file} has no plans.", "docs/tenants.md says what a tenants file looks like.")
    tenants["tenants"] = tenants.get("tenants") or {}
    return tenants


def _tenant(tenants: dict[str, Any]) -> dict[str, Any]:
    demo: dict[str, Any] = {"plan": next(iter(tenants["plans"])), "models": ["*"], "scopes": ["infer"]}
    found: dict[str, Any] = tenants["tenants"].get(TENANT) or demo
    tenants["tenants"][TENANT] = found
    return found
