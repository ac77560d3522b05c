import asyncio
import contextlib
import logging
import os
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from app.tenancy.directory import Directory
from app.tenancy.key import digest, new_key
from app.tenancy.snapshot import load
from app.tenancy.tenant import Quota
from app.tenancy.tenants_file import TenantsInvalid

KEY, OTHER_KEY = b"a key", b"another key"
PLAN = "plans:\n  standard: {requests_per_second: 20, burst: 40, in_flight: 16, priority: 2}\n"


def tenants(*entries: str) -> str:
    return PLAN + "tenants:\n" + "".join(f"  {entry}\n" for entry in entries)


def acme(keys: str = "", more: str = "") -> str:
    return f'acme: {{plan: standard, models: ["*"], keys: [{keys}]{more}}}'


def key(key: bytes = KEY, key_id: str = "k1", more: str = "") -> str:
    return f'{{id: {key_id}, sha256: "{digest(key).hex()}"{more}}}'


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "tenants.yaml"


def test_a_known_key_finds_its_principal(file: Path) -> None:
    file.write_text(tenants(acme(key())))
    directory = Directory(file)
    principal = directory.authenticate(KEY)
    assert principal is not None
    assert (principal.tenant.id, principal.key_id, principal.scopes) == ("acme", "k1", frozenset({"infer"}))
    assert principal.tenant is directory.tenants["acme"]
    assert directory.authenticate(b"") is None
    assert directory.authenticate(KEY + b" ") is None
    assert directory.authenticate(digest(KEY)) is None
    assert directory.authenticate(digest(KEY).hex().encode()) is None


HOUR = timedelta(hours=1)


@pytest.mark.parametrize(
    ("not_before", "expires_at", "valid"),
    [
        (None, HOUR, True),
        (None, -HOUR, False),
        (-HOUR, None, True),
        (HOUR, None, False),
        (-HOUR, HOUR, True),
    ],
)
def test_a_key_holds_only_in_its_time(
    file: Path, not_before: timedelta | None, expires_at: timedelta | None, valid: bool
) -> None:
    now = datetime.now(UTC)
    times = {"not_before": not_before, "expires_at": expires_at}
    more = "".join(f", {name}: {(now + offset).isoformat()}" for name, offset in times.items() if offset)
    file.write_text(tenants(acme(key(more=more))))
    assert (Directory(file).authenticate(KEY) is not None) is valid


def test_two_keys_of_a_tenant_live_side_by_side_and_one_may_be_allowed_less(file: Path) -> None:
    keys = key(KEY, "k1") + ", " + key(OTHER_KEY, "k2", ", scopes: [infer]")
    file.write_text(tenants(acme(keys, ", scopes: [infer, admin]")))
    directory = Directory(file)
    first, second = directory.authenticate(KEY), directory.authenticate(OTHER_KEY)
    assert first is not None
    assert second is not None
    assert (first.scopes, second.scopes) == (frozenset({"infer", "admin"}), frozenset({"infer"}))
    assert first.tenant is second.tenant


def test_a_tenant_overrides_its_plan_field_by_field_and_routes_stand_beside(file: Path) -> None:
    file.write_text(
        """
plans:
  standard:
    requests_per_second: 20
    burst: 40
    in_flight: 16
    characters_per_day: 1000
    enforce: {daily: false}
    routes: {pii: {in_flight: 2}}
tenants:
  acme:
    plan: standard
    models: ["bge-*", sentiment]
    priority: 1
    limits: {requests_per_second: 100, in_flight: null, on_redis_loss: closed}
    routes: {sentiment: {requests_per_second: 5, enforce: false}, pii: {requests_per_second: 1}}
  plain: {plan: standard, models: []}
  free: {plan: standard, models: [], limits: {requests_per_second: null, in_flight: null, characters_per_day: null}}
"""
    )
    acme, plain = Directory(file).tenants["acme"], Directory(file).tenants["plain"]
    assert acme.quota == Quota(100, 40, characters_per_day=1000, on_redis_loss="closed", shadow=frozenset({"daily"}))
    everything = frozenset({"requests", "characters", "in_flight", "daily"})
    assert acme.routes == {"pii": Quota(1, in_flight=2), "sentiment": Quota(5, shadow=everything)}
    assert (acme.priority, plain.priority) == (1, 2)
    assert plain.quota == Quota(20, 40, in_flight=16, characters_per_day=1000, shadow=frozenset({"daily"}))
    assert Directory(file).tenants["free"].quota == Quota(shadow=frozenset({"daily"}))
    assert [acme.may_see(model) for model in ("bge-small", "sentiment", "topics")] == [True, True, False]


@pytest.mark.parametrize(
    ("text", "line", "field", "sentence"),
    [
        ("", 0, "", "the file is empty"),
        ("- a\n", 1, "", "mapping"),
        ("plans: {", 2, "", "is not YAML"),
        (PLAN + "tenant: {}\n", 3, "tenant", "not a field known here; did you mean tenants?"),
        (PLAN.replace("burst", "burts"), 2, "plans.standard.burts", "did you mean burst?"),
        (PLAN.replace("20", "0"), 2, "plans.standard.requests_per_second", "greater than 0"),
        (PLAN.replace("20", ".inf"), 2, "plans.standard.requests_per_second", "finite"),
        (PLAN.replace("20", "true"), 2, "plans.standard.requests_per_second", "number"),
        (PLAN.replace("40", "'40'"), 2, "plans.standard.burst", "integer"),
        (PLAN.replace("40", "4.5"), 2, "plans.standard.burst", "integer"),
        (PLAN.replace("requests_per_second: 20, ", ""), 2, "plans.standard.burst", "nothing without requests_per_second"),
        (PLAN.replace("20", "0.00001"), 2, "plans.standard.requests_per_second", "31 days"),
        (PLAN.replace("in_flight: 16", "characters_per_minute: 0.00001"), 2, "plans.standard.characters_per_minute", "31 days"),
        (PLAN.replace("priority: 2", "enforce: {request: false}"), 2, "plans.standard.enforce.request", "should be 'requests'"),
        (PLAN.replace("priority: 2", "on_redis_loss: maybe"), 2, "plans.standard.on_redis_loss", "'local', 'open' or 'closed'"),
        (tenants("Acme: {plan: standard, models: []}"), 4, "tenants.Acme", "lower-case"),
        (tenants("'a{b}': {plan: standard, models: []}"), 4, "tenants.a{b}", "lower-case"),
        (tenants("acme: {plan: standard}"), 4, "tenants.acme.models", "is missing"),
        (tenants("acme: {plan: gold, models: []}"), 4, "tenants.acme.plan", "there is no such plan"),
        (tenants(acme(), acme()), 5, "", "acme is there twice"),
        (tenants(acme("{id: k1, sha256: secret}")), 4, "tenants.acme.keys[0].sha256", "SHA-256"),
        (tenants(acme(key(more=", expires_at: 2027-01-01T00:00:00"))), 4, "tenants.acme.keys[0].expires_at", "time zone"),
        (tenants(acme(key(more=", scopes: [admin]"))), 4, "tenants.acme.keys[0].scopes", "that its tenant lacks"),
        (tenants(acme(key(more=", scopes: [root]"))), 4, "tenants.acme.keys[0].scopes[0]", "'infer' or 'admin'"),
        (tenants(acme(key() + ", " + key(OTHER_KEY))), 4, "tenants.acme.keys[1].id", "another key of this tenant"),
        (tenants(acme(key() + ", " + key(KEY, "k2"))), 4, "tenants.acme.keys[1].sha256", "there twice"),
        (tenants(acme(), "7: {plan: standard, models: []}"), 5, "tenants[7]", "string"),
    ],
)
def test_a_fault_is_told_by_file_line_and_field(file: Path, text: str, line: int, field: str, sentence: str) -> None:
    file.write_text(text)
    with pytest.raises(TenantsInvalid) as caught:
        load(file)
    fault = caught.value.faults[0]
    assert (fault.file, fault.line, fault.field) == (str(file), line, field)
    assert sentence in fault.sentence
    assert str(fault) in str(caught.value)


def test_a_fault_is_one_line_whatever_a_name_is(file: Path) -> None:
    file.write_text(tenants('"a\\nb\\e[31m": {plan: standard, models: []}'))
    with pytest.raises(TenantsInvalid) as caught:
        load(file)
    assert [str(fault) for fault in caught.value.faults] == str(caught.value).splitlines()
    assert r"tenants.a\nb\x1b[31m: " in str(caught.value)


def test_all_faults_of_all_files_are_told_at_once(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("plans: {p: {burst: 0, in_flight: 0}}")
    (tmp_path / "b.yml").write_text("tenants: {a: {}}")
    with pytest.raises(TenantsInvalid) as caught:
        load(tmp_path)
    assert len(caught.value.faults) == 4


def test_a_key_pasted_into_the_file_is_not_repeated_in_the_fault(file: Path) -> None:
    secret, _ = new_key("live", "k1")
    file.write_text(tenants(acme(f"{{id: k1, sha256: {secret}}}")))
    with pytest.raises(TenantsInvalid) as caught:
        load(file)
    assert secret not in str(caught.value)


@pytest.mark.parametrize("there", [False, True])
def test_nothing_to_read_is_a_fault(tmp_path: Path, there: bool) -> None:
    with pytest.raises(TenantsInvalid, match="there is no such file"):
        load(tmp_path if there else tmp_path / "absent.yaml")


def test_the_files_of_a_directory_are_one(tmp_path: Path) -> None:
    # As Kubernetes mounts them: links into a hidden directory.
    hidden = tmp_path / "..2026"
    hidden.mkdir()
    for name, text in {"b-plans.yaml": PLAN, "a-acme.yaml": "tenants:\n  " + acme(key()), "notes.txt": "{"}.items():
        (hidden / name).write_text(text)
        (tmp_path / name).symlink_to(hidden / name)
    directory = Directory(tmp_path)
    assert directory.authenticate(KEY) is not None
    (tmp_path / "c.yaml").write_text("plans: {standard: {}}\ntenants:\n  acme: {plan: standard, models: []}")
    with pytest.raises(TenantsInvalid) as caught:
        load(tmp_path)
    assert [(fault.field, fault.line) for fault in caught.value.faults] == [("plans.standard", 1), ("tenants.acme", 3)]


def write(file: Path, text: str) -> Path:
    file.write_text(text)
    return file


def remove(file: Path) -> None:
    file.unlink()


def rename(file: Path, to: Path) -> None:
    file.replace(to)


@contextlib.asynccontextmanager
async def watching(directory: Directory) -> AsyncIterator[None]:
    task = asyncio.create_task(directory.watch(interval=0.05))
    try:
        yield
    finally:
        assert not task.done()
        task.cancel()


async def settled(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while True:
            if condition():
                return
            await asyncio.sleep(0.01)


async def test_a_changed_file_is_taken_up_and_a_bad_one_changes_nothing(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "conch.tenancy")
    write(file, tenants(acme(key())))
    directory = Directory(file)
    async with watching(directory):
        write(file, tenants(acme(key(OTHER_KEY))))
        await settled(lambda: directory.generation == 2)
        assert directory.authenticate(KEY) is None
        assert directory.authenticate(OTHER_KEY) is not None

        write(file, tenants(acme(key(OTHER_KEY)), "b: {}"))
        await settled(lambda: directory.failures == 1)
        assert directory.authenticate(OTHER_KEY) is not None

        remove(file)
        await settled(lambda: directory.failures == 2)
        assert directory.authenticate(OTHER_KEY) is not None
        assert "there is no such file" in directory.refused

        rename(write(file.with_suffix(".new"), tenants(acme(key()))), file)
        await settled(lambda: directory.generation == 3)
        assert directory.authenticate(KEY) is not None
        assert not directory.refused
    assert [record.levelname for record in caplog.records] == ["INFO", "ERROR", "ERROR", "INFO"]
    assert f"{file}:5: tenants.b.plan: is missing (and 1 more)" in caplog.text


@pytest.fixture
def many(file: Path) -> Path:
    entries = (
        f't{i}: {{plan: standard, models: ["*"], keys: [{{id: k1, sha256: "{digest(b"%d" % i).hex()}"}}]}}'
        for i in range(10_000)
    )
    file.write_text(tenants(*entries))
    return file


async def test_ten_thousand_tenants_load_while_requests_go_on(many: Path) -> None:
    directory = Directory(many)
    turns, before = 0, directory.content
    async with watching(directory):
        os.utime(many)
        await asyncio.sleep(0.2)  # until the change is seen
        while directory.generation == 1:
            principal = directory.authenticate(b"%d" % (turns % 10_000))
            assert principal is not None
            assert principal.tenant.id == f"t{turns % 10_000}"
            turns += 1
            await asyncio.sleep(0)
    assert turns > 100
    assert directory.content is not before


def test_tenants_of_one_plan_share_their_quota(many: Path) -> None:
    tenants = load(many).tenants
    assert tenants["t1"].quota is tenants["t9999"].quota


def test_the_example_is_valid() -> None:
    snapshot = load(Path(__file__).parents[2] / "config" / "tenants.yaml")
    assert {tenant.plan for tenant in snapshot.tenants.values()} == {"standard"}
