"""A tenants file, edited by a command: whatever its form, its comments and its meaning stay."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from app.tenancy.key import new_key
from app.tenancy.revision import NotRevised, add_key, remove_key
from app.tenancy.snapshot import load
from app.tenancy.tenants_file import TenantsInvalid

ONE, TWO, NEW = (new_key("test", name)[1] for name in ("one", "two", "new"))
ENTRY = {"id": "new", "sha256": NEW, "expires_at": "2099-01-01T00:00:00Z"}
HAD = f'{{id: one, sha256: "{ONE}"}}'
LINE = f'{{id: new, sha256: "{NEW}", expires_at: 2099-01-01T00:00:00Z}}'
PLAN = "# Größe zählt\nplans: {p: {}}\n\ntenants:\n"
AFTER = "\n  # the other one\n  other: {plan: p, models: []}  # nothing yet\n"

FORMS: dict[str, tuple[str, str]] = {
    "an empty list": (
        '  acme: # us\n    plan: p\n    keys: []   # none\n    models: ["*"]\n',
        f'  acme: # us\n    plan: p\n    keys: [{LINE}]   # none\n    models: ["*"]\n',
    ),
    "a list on one line": (
        f'  acme:\n    plan: p\n    keys: [{HAD}]  # one\n    models: ["*"]\n',
        f'  acme:\n    plan: p\n    keys: [{HAD}, {LINE}]  # one\n    models: ["*"]\n',
    ),
    "a list with a comma too many": (
        f'  acme: {{plan: p, models: ["*"], keys: [{HAD},]}}\n',
        f'  acme: {{plan: p, models: ["*"], keys: [{HAD}, {LINE},]}}\n',
    ),
    "items in lines": (
        f'  acme:\n    plan: p\n    models: ["*"]\n    keys:\n      # ours\n      - {HAD}  # Ann\n',
        f'  acme:\n    plan: p\n    models: ["*"]\n    keys:\n      # ours\n      - {HAD}  # Ann\n      - {LINE}\n',
    ),
    "items that are not indented": (
        f'  acme:\n    plan: p\n    keys:\n    - id: one\n      sha256: "{ONE}" # Ann\n    # x\n    models: []\n',
        f'  acme:\n    plan: p\n    keys:\n    - id: one\n      sha256: "{ONE}" # Ann\n    - {LINE}\n    # x\n    models: []\n',
    ),
    "no list": (
        "  acme:\n    plan: p\n    models:\n      - '*'   # all\n    # end of acme\n",
        f"  acme:\n    plan: p\n    models:\n      - '*'   # all\n    keys: [{LINE}]\n    # end of acme\n",
    ),
    "no list, on one line": (
        '  acme: {plan: p, models: ["*"]}\n',
        f'  acme: {{plan: p, models: ["*"], keys: [{LINE}]}}\n',
    ),
    "JSON": (
        '  "acme": {"plan": "p", "models": ["*"], "keys": []}\n',
        f'  "acme": {{"plan": "p", "models": ["*"], "keys": [{LINE}]}}\n',
    ),
    "a list over lines": (
        f"  acme:\n    plan: p\n    models: []\n    keys: [\n      {HAD},  # Ann\n    ]\n",
        f"  acme:\n    plan: p\n    models: []\n    keys: [\n      {HAD}, {LINE},  # Ann\n    ]\n",
    ),
}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "tenants.yaml"


def key_ids(path: Path, tenant: str = "acme") -> list[str]:
    return [of.principal.key_id for of in load(path).credentials.values() if of.principal.tenant.id == tenant]


@pytest.mark.parametrize("newline", ["\n", "\r\n"], ids=["unix", "dos"])
@pytest.mark.parametrize("after", [AFTER, "", "# the end"], ids=["between", "last", "no last newline"])
@pytest.mark.parametrize("name", FORMS)
def test_a_key_is_written_where_a_person_would_and_taken_out_again(file: Path, name: str, after: str, newline: str) -> None:
    before, revised = (f"{PLAN}{part}{after}".replace("\n", newline).encode() for part in FORMS[name])
    file.write_bytes(before)
    had = key_ids(file)
    assert add_key(file, "acme", ENTRY) == file
    assert file.read_bytes() == revised
    assert key_ids(file) == [*had, "new"]
    remove_key(file, "acme", "new")
    assert key_ids(file) == had
    if name not in ("no list", "no list, on one line"):
        assert file.read_bytes() == before


def test_a_key_is_taken_out_of_the_middle_with_its_own_comment_alone(file: Path) -> None:
    lines = [f'      - {{id: {name}, sha256: "{new_key("test", name)[1]}"}}  # {name} is ours\n' for name in ("a", "b", "c")]
    head = f"{PLAN}  acme:\n    plan: p\n    models: []\n    keys:\n"
    file.write_text(head + "".join(lines) + AFTER)
    for gone in ("b", "c", "a"):
        lines = [line for line in lines if f"# {gone} is" not in line]
        remove_key(file, "acme", gone)
        expected = head + "".join(lines) if lines else head.replace("keys:", "keys: []")
        assert file.read_text() == expected + AFTER


@pytest.mark.parametrize(("gone", "left"), [("one", "two"), ("two", "one")])
@pytest.mark.parametrize(
    "form",
    [
        "[{}, {}]",
        "[{}, {},]",
        "[\n      {},  # first\n      {},  # second\n    ]",
        "[\n      {},  # first\n      {}  # second\n    ]",
        "[ {} ,\n {} ]",
    ],
)
def test_a_key_is_taken_out_of_a_list_in_brackets_and_the_other_keeps_its_comment(
    file: Path, form: str, gone: str, left: str
) -> None:
    items = [HAD, f'{{id: two, sha256: "{TWO}"}}']
    file.write_text(f"{PLAN}  acme:\n    plan: p\n    models: []\n    keys: {form.format(*items)}\n{AFTER}")
    remove_key(file, "acme", gone)
    assert key_ids(file) == [left]
    comments = {"one": "# first", "two": "# second"}
    if "#" in form:
        assert f"{left}, sha256" in next(line for line in file.read_text().splitlines() if comments[left] in line)
        assert comments[gone] not in file.read_text()


REFUSED = {
    "no such tenant": ("  other: {plan: p, models: []}\n", "no tenant acme"),
    "a key of this id": (f'  acme: {{plan: p, models: [], keys: [{{id: new, sha256: "{ONE}"}}]}}\n', "has this id"),
    "this very key elsewhere": (
        f'  acme: {{plan: p, models: []}}\n  other: {{plan: p, models: [], keys: [{{id: k, sha256: "{NEW}"}}]}}\n',
        "there twice",
    ),
    "a list that two tenants share": (
        "  other: {plan: p, models: [], keys: &none []}\n  acme: {plan: p, models: [], keys: *none}\n",
        "edited safely",
    ),
    "a list that is merged in": ("  other: &o {plan: p, models: [], keys: []}\n  acme: {<<: *o, priority: 1}\n", None),
    "a tenant that is merged in": ("  other: &o {plan: p, models: [], keys: []}\n  acme: *o\n", "edited safely"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_can_not_be_written_safely_is_not_written(file: Path, name: str) -> None:
    text, why = REFUSED[name]
    file.write_text(PLAN + text)
    if why is None:
        add_key(file, "acme", ENTRY)
        assert (key_ids(file), key_ids(file, "other")) == (["new"], [])
        return
    with pytest.raises(NotRevised, match=why):
        add_key(file, "acme", ENTRY)
    assert file.read_text() == PLAN + text


def test_a_key_that_is_not_there_and_a_file_that_is_not_valid_are_left_alone(file: Path) -> None:
    text = f"{PLAN}  acme: {{plan: p, models: []}}\n"
    file.write_text(text)
    with pytest.raises(NotRevised, match="has no key gone"):
        remove_key(file, "acme", "gone")
    file.write_text(text + "  acme: {}\n")
    with pytest.raises(TenantsInvalid):
        add_key(file, "acme", ENTRY)
    assert file.read_text() == text + "  acme: {}\n"


def test_of_a_directory_the_file_with_the_tenant_is_written_and_a_link_stays_one(tmp_path: Path) -> None:
    real, folder = tmp_path / "real", tmp_path / "tenants"
    real.mkdir()
    folder.mkdir()
    (folder / "plans.yaml").write_text("plans: {p: {}}\n")
    (real / "acme").write_text("tenants: {acme: {plan: p, models: []}}\n")
    (real / "acme").chmod(0o640)
    (folder / "acme.yaml").symlink_to(real / "acme")
    assert add_key(folder, "acme", ENTRY) == folder / "acme.yaml"
    assert (folder / "acme.yaml").is_symlink()
    assert key_ids(folder) == ["new"]
    assert (real / "acme").stat().st_mode & 0o777 == 0o640
    assert sorted(file.name for at in (real, folder) for file in at.iterdir()) == ["acme", "acme.yaml", "plans.yaml"]


NAMES = st.sampled_from(["acme", "other", "third"])
KEYS = st.lists(st.sampled_from("abcdef"), unique=True, max_size=3)


@settings(deadline=None, max_examples=200)
@given(st.dictionaries(NAMES, KEYS, min_size=1), st.booleans(), st.data())
def test_the_one_change_is_all_that_a_revision_means(
    tmp_path_factory: pytest.TempPathFactory, tenants: dict[str, list[str]], flow: bool, data: st.DataObject
) -> None:
    def entry(tenant: str, keys: list[str]) -> dict[str, Any]:
        made = [{"id": key, "sha256": f"{ord(key) * 97 + ord(tenant[0]):064x}"} for key in keys]
        return {"plan": "p", "keys": made, "models": ["größe-*"]}

    content: dict[str, Any] = {"plans": {"p": {}}, "tenants": {name: entry(name, keys) for name, keys in tenants.items()}}
    file = tmp_path_factory.mktemp("revision") / "tenants.yaml"
    file.write_text(yaml.safe_dump(content, default_flow_style=flow, allow_unicode=True, width=60))
    tenant = data.draw(st.sampled_from(sorted(tenants)))
    add_key(file, tenant, ENTRY)
    if tenants[tenant]:
        remove_key(file, tenant, data.draw(st.sampled_from(tenants[tenant])))
    remove_key(file, tenant, "new")
    left = yaml.safe_load(file.read_text())
    kept = {key["id"] for key in left["tenants"][tenant]["keys"]}
    assert len(kept) == max(0, len(tenants[tenant]) - 1)
    content["tenants"][tenant]["keys"] = [key for key in content["tenants"][tenant]["keys"] if key["id"] in kept]
    assert left == content
