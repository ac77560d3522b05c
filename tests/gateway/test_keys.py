"""The life of a key: made, written, listed, used, revoked; by the commands, with a gateway that runs."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from app.cli import main
from app.tenancy.key import read_key
from tests.fakes.triton import FakeTriton
from tests.gateway.process import ROOT, RunningGateway, conch
from tests.peers import Redis

START = """# who may call
plans: {plain: {}}
tenants:
  acme:                 # our best
    plan: plain
    models: ["*"]
    keys: []            # from `conch keys new`
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "tenants.yaml"
    file.write_text(START)
    return file


def keys(file: Path, *arguments: str, stdin: str = "") -> Result:
    return CliRunner().invoke(main, ["keys", *arguments, "--tenants", str(file)], input=stdin)


async def test_a_key_that_is_written_is_taken_by_a_running_gateway_until_it_is_revoked(
    start_gateway: Callable[..., Awaitable[RunningGateway]], stage: FakeTriton, redis: Redis, staged_routes: Path, file: Path
) -> None:
    gateway = await start_gateway(
        TRITON=stage.address, REDIS_URL=redis.url, ROUTES_FILE=str(staged_routes), TENANTS_FILE=str(file)
    )
    code, out, err = await conch("keys", "new", "k1", "--write", "acme", "--expires", "90d", CONCH_TENANTS_FILE=str(file))
    assert code == 0, err
    key = out.strip()
    assert read_key(key).id == "k1"
    assert key not in err + file.read_text()

    async def becomes(status: int) -> None:
        async with asyncio.timeout(10):
            while (await gateway.client.get("/v1/models", headers={"x-api-key": key})).status_code != status:
                await asyncio.sleep(0.05)

    await becomes(200)
    code, out, err = await conch("keys", "revoke", "acme", "k1", CONCH_TENANTS_FILE=str(file))
    assert (code, err) == (0, "")
    await becomes(401)
    assert file.read_text() == START
    assert key not in await gateway.logged()


def test_what_is_written_says_the_same_as_what_is_printed(file: Path) -> None:
    printed = CliRunner().invoke(main, ["keys", "new", "k1", "--expires", "2099-01-31"])
    assert "- id: k1\n" in printed.stderr
    assert "expires_at: '2099-01-31T00:00:00Z'" in printed.stderr
    written = keys(file, "new", "k1", "--write", "acme", "--expires", "2099-01-31")
    assert (written.exit_code, len(written.stdout.split())) == (0, 1)
    assert "expires_at: 2099-01-31T00:00:00Z" in file.read_text()
    verified = keys(file, "verify", stdin=written.stdout)
    assert verified.stdout == "tenant acme, key k1, scopes infer\n"


def test_keys_are_listed_with_what_they_are_worth_now(file: Path) -> None:
    for key_id in ("old", "new", "early", "forever"):
        assert (
            keys(
                file, "new", key_id, "--write", "acme", *(() if key_id == "forever" else ("--expires", "2099-01-31"))
            ).exit_code
            == 0
        )
    text = file.read_text()
    old, rest = text.split(", {id: new", 1)
    file.write_text(
        old.replace("2099", "2020")
        + ", {id: new"
        + rest.replace("{id: early,", "{id: early, not_before: 2098-01-01T00:00:00Z,")
    )
    listed = keys(file, "list")
    assert listed.exit_code == 0
    assert [line.split() for line in listed.stdout.splitlines()] == [
        ["TENANT", "KEY", "STATE", "EXPIRES"],
        ["acme", "old", "expired", "2020-01-31T00:00:00Z"],
        ["acme", "new", "valid", "2099-01-31T00:00:00Z"],
        ["acme", "early", "not", "before", "2098-01-01T00:00:00Z", "2099-01-31T00:00:00Z"],
        ["acme", "forever", "valid", "never"],
    ]


REFUSED = [
    (("new", "k1", "--write", "nobody"), "not written: there is no tenant nobody"),
    (("new", "k0", "--write", "acme"), "not written: it would not be valid then: tenants.acme.keys[1].id: another key"),
    (("new", "Not An Id", "--write", "acme"), "lower-case"),
    (("revoke", "acme", "k9"), "not revoked: tenant acme has no key k9"),
    (("revoke", "nobody", "k0"), "not revoked: there is no tenant nobody"),
]


@pytest.mark.parametrize(("arguments", "words"), REFUSED)
def test_what_can_not_be_done_is_said_and_nothing_is_written(file: Path, arguments: tuple[str, ...], words: str) -> None:
    keys(file, "new", "k0", "--write", "acme")
    before = file.read_text()
    refused = keys(file, *arguments)
    assert refused.exit_code == 1
    assert words in refused.stderr
    assert file.read_text() == before
    made = [word for word in refused.stdout.split() if word.startswith("ck_")]
    assert len(made) == (arguments[0] == "new" and arguments[1] != "Not An Id")
    assert ("sha256: " in refused.stderr) == bool(made), "a key that was not written is shown with its entry"


def test_a_file_that_is_not_valid_is_told_and_left_alone(file: Path) -> None:
    file.write_text(START + "  acme: {}\n")
    for arguments in (("list",), ("new", "k1", "--write", "acme"), ("revoke", "acme", "k1")):
        refused = keys(file, *arguments)
        assert (refused.exit_code, refused.stdout) == (1, "")
        assert f"{file}:8: is not YAML: acme is there twice" in refused.stderr


@pytest.mark.parametrize("expires", ["2020-01-01", "soon", "0d", "90", "-1d", "99999w", "2027-13-01", "12m"])
def test_an_end_that_is_none_is_not_understood(file: Path, expires: str) -> None:
    refused = keys(file, "new", "k1", "--write", "acme", "--expires", expires)
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert "--expires" in refused.stderr
    assert file.read_text() == START


@pytest.mark.parametrize(
    ("expires", "written"),
    [("2099-01-31T12:00:00+02:00", "2099-01-31T10:00:00Z"), ("2099-01-31T12:00", "2099-01-31T12:00:00Z")],
)
def test_an_end_is_written_in_utc(file: Path, expires: str, written: str) -> None:
    assert keys(file, "new", "k1", "--write", "acme", "--expires", expires).exit_code == 0
    assert f"expires_at: {written}}}" in file.read_text()


def test_the_example_in_config_can_be_written_and_revoked(tmp_path: Path) -> None:
    file = tmp_path / "tenants.yaml"
    example = (ROOT / "config" / "tenants.yaml").read_text()
    file.write_text(example)
    assert keys(file, "new", "k1", "--write", "demo").exit_code == 0
    assert file.read_text() != example
    assert keys(file, "revoke", "demo", "k1").exit_code == 0
    assert file.read_text() == example
