"""What can be said of Dockerfile and compose.yaml without an engine."""

import os
import re
import subprocess
from pathlib import Path

import pytest
import yaml

from app.settings import Settings
from tests.conftest import ROOT

COMPOSE = yaml.safe_load((ROOT / "compose.yaml").read_text())
DOCKERFILE = (ROOT / "Dockerfile").read_text()
OTHERS = {"CONCH_HOME"}


def test_every_variable_that_is_set_is_a_setting() -> None:
    known = {f"CONCH_{name.upper()}" for name in Settings.model_fields} | OTHERS
    given = {name for service in COMPOSE["services"].values() for name in service.get("environment", ())}
    assigned = re.findall(r"^(?:ENV)?\s+(CONCH_\w+)=", DOCKERFILE, re.MULTILINE)
    assert {name for name in (*given, *assigned) if name.startswith("CONCH_")} <= known


@pytest.mark.parametrize("name", COMPOSE["services"])
def test_every_service_is_hardened_bounded_and_pinned(name: str) -> None:
    service = COMPOSE["services"][name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["deploy"]["resources"]["limits"]["pids"]
    assert "build" in service or re.search(r":[\w.-]+@sha256:[0-9a-f]{64}$", service["image"])


def test_every_base_is_pinned() -> None:
    bases = dict(re.findall(r"^ARG (\w+_IMAGE)=(\S+)$", DOCKERFILE, re.MULTILINE))
    assert all(re.search(r":[\w.-]+@sha256:[0-9a-f]{64}$", base) for base in bases.values())
    stages = dict(re.findall(r"^FROM (\S+) AS (\w+)$", DOCKERFILE, re.MULTILINE))
    assert {base for base in stages if "$" in base} == {f"${{{name}}}" for name in bases}


def test_nothing_but_the_gateway_and_grafana_leads_outside() -> None:
    outside = {name for name, network in COMPOSE["networks"].items() if not (network or {}).get("internal")}
    connected = {name for name, service in COMPOSE["services"].items() if outside & set(service["networks"])}
    assert connected == {"gateway", "grafana"}
    published = [port for service in COMPOSE["services"].values() for port in service.get("ports", ())]
    assert all(port.startswith("127.0.0.1:") for port in published)


def test_every_secret_is_made_once_for_its_owner_alone(tmp_path: Path) -> None:
    def make() -> dict[str, str]:
        variables = os.environ | {"CONCH_SECRETS": str(tmp_path / "secrets")}
        subprocess.run(("sh", "config/compose/secrets.sh"), cwd=ROOT, env=variables, check=True, capture_output=True)
        return {file.name: file.read_text() for file in (tmp_path / "secrets").iterdir()}

    secrets = make()
    assert secrets.keys() == {Path(secret["file"].rpartition("}")[2]).name for secret in COMPOSE["secrets"].values()}
    assert (tmp_path / "secrets").stat().st_mode & 0o777 == 0o700
    assert make() == secrets
    assert len(set(secrets.values())) == len(secrets)
