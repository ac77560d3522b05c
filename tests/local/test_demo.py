"""The demo tenant."""

from pathlib import Path

import pytest
import yaml

from app.local.demo import demo_key, write_tenants
from app.local.home import Home
from app.local.trouble import Trouble
from app.tenancy.key import digest
from tests.conftest import ROOT

TEMPLATE = ROOT / "config" / "tenants.yaml"


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


def known(home: Home) -> str:
    (key,) = yaml.safe_load(home.tenants.read_text())["tenants"]["demo"]["keys"]
    return str(key["sha256"])


def test_a_key_that_was_mangled_is_replaced_and_the_tenants_learn_the_new_one(home: Home) -> None:
    first = demo_key(home)
    write_tenants(home, TEMPLATE, first)
    home.key.write_text(f"{first}x\n")
    second = demo_key(home)
    write_tenants(home, TEMPLATE, second)
    assert second != first
    assert known(home) == digest(second.encode()).hex()


def test_a_template_without_the_demo_tenant_gets_one(home: Home) -> None:
    template = home.path / "template.yaml"
    template.write_text("plans: {trial: {requests_per_second: 2}}\ntenants: {acme: {plan: trial, models: ['*']}}\n")
    write_tenants(home, template, demo_key(home))
    tenants = yaml.safe_load(home.tenants.read_text())["tenants"]
    assert set(tenants) == {"acme", "demo"}
    assert tenants["demo"]["plan"] == "trial"


@pytest.mark.parametrize(("text", "what"), [("plans: [", "can't be read"), ("", "has no plans"), ("- 1", "has no plans")])
def test_tenants_that_make_no_sense_are_a_trouble_that_names_the_file(home: Home, text: str, what: str) -> None:
    template = home.path / "template.yaml"
    template.write_text(text)
    with pytest.raises(Trouble, match=what) as caught:
        write_tenants(home, template, demo_key(home))
    assert str(template) in caught.value.what


def test_missing_tenants_are_a_trouble(home: Home) -> None:
    with pytest.raises(Trouble, match="No such file"):
        write_tenants(home, home.path / "nowhere.yaml", demo_key(home))
