"""What must hold whatever else changes: hashes, floors, caps, and how secrets are compared."""

import ast
import math
import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

from app.settings import Settings
from tests.security.sbom import ROOT, pins

LOCKS = sorted((ROOT / "requirements").glob("*.txt"))
FLOORS = {"starlette": "1.0.1", "h11": "0.16.0", "pyjwt": "2.13.0", "redis": "4.5.5"}
BANNED = {"python-jose", "python-multipart", "aiohttp", "pip"}
CAPS = re.compile(r"max_|_seconds$|_ms$|_connections$|^bulk_(posts|lines)$|parallelism")


@pytest.mark.parametrize("lock", LOCKS, ids=[lock.name for lock in LOCKS])
def test_every_locked_package_has_hashes(lock: Path) -> None:
    found = list(pins(lock))
    assert found
    assert [pin.name for pin in found if not pin.hashes] == []
    assert "--index-url" not in lock.read_text()
    assert "://" not in re.sub(r"^#.*$", "", lock.read_text(), flags=re.MULTILINE)


def test_no_package_is_below_its_floor_and_none_is_banned() -> None:
    locked = {pin.name.lower(): Version(pin.version) for pin in pins(ROOT / "requirements" / "runtime.txt")}
    assert {name: floor for name, floor in FLOORS.items() if locked[name] < Version(floor)} == {}
    assert locked.keys() & BANNED == set()


def test_the_project_asks_for_no_less_than_the_floors() -> None:
    asked = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    for requirement in map(Requirement, asked):
        if floor := FLOORS.get(requirement.name.lower()):
            assert min(Version(of.version) for of in requirement.specifier if of.operator == ">=") >= Version(floor)


def test_every_cap_has_a_default() -> None:
    caps = {name: field.default for name, field in Settings.model_fields.items() if CAPS.search(name)}
    assert len(caps) > 10
    assert [name for name, default in caps.items() if not isinstance(default, int | float) or not math.isfinite(default)] == []


def test_secrets_are_compared_in_constant_time() -> None:
    """No `==` has a digest, a secret, a signature or a key's checksum on any side of it."""
    secret = re.compile(r"digest|secret|signature|presented|checksum")
    found = []
    for file in [*(ROOT / "app" / "tenancy").glob("*.py"), *(ROOT / "app" / "edge").glob("*.py")]:
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Compare) and any(isinstance(of, ast.Eq | ast.NotEq) for of in node.ops):
                sides = [ast.unparse(side) for side in (node.left, *node.comparators)]
                if any(secret.search(re.split(r"[.(]", side)[-1].rstrip(")")) for side in sides):
                    found.append(f"{file.name}:{node.lineno} {ast.unparse(node)}")
    assert found == []
    assert "hmac.compare_digest" in (ROOT / "app" / "tenancy" / "directory.py").read_text()
