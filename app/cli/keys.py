"""The commands for tenants' keys."""

import re
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import click
import yaml

from app.cli.outcome import fail, settings_or_fail
from app.tenancy.key import KeyMalformed, KeyMistyped, new_key, read_key
from app.tenancy.revision import Entry, NotRevised, add_key, remove_key
from app.tenancy.snapshot import Credential, load
from app.tenancy.tenants_file import TenantsInvalid


class _Expiry(click.ParamType[str]):
    """A moment in the future, as `tenants.yaml` wants it."""

    name = "90d|DATE"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        now = datetime.now(UTC)
        try:
            moment = _moment(value, now)
        except (ValueError, OverflowError):
            self.fail("say 90d, 12h or 4w, or a date such as 2027-01-31 or 2027-01-31T12:00:00Z", param, ctx)
        if moment <= now:
            self.fail("is not in the future", param, ctx)
        return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def _moment(text: str, now: datetime) -> datetime:
    if match := re.fullmatch(r"(\d{1,4})([hdw])", text):
        return now + int(match[1]) * {"h": timedelta(hours=1), "d": timedelta(days=1), "w": timedelta(weeks=1)}[match[2]]
    moment = datetime.fromisoformat(text)
    return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)


_TENANTS = click.option(
    "--tenants",
    type=click.Path(path_type=Path),
    metavar="PATH",
    help="The tenants, a file or a directory of files; default: CONCH_TENANTS_FILE.",
)


@click.group()
def keys() -> None:
    """Make, list, check and revoke tenants' keys.

    A running gateway follows tenants.yaml: what is written there holds within two seconds.
    """


@keys.command()
@click.argument("key_id", metavar="ID")
@click.option("--env", default="live", show_default=True, help="Which environment the key is for; part of the key.")
@click.option("--expires", type=_Expiry(), help="When it ends: after 12h, 90d or 4w, or on a date (UTC). Default: never.")
@click.option("--write", "tenant", metavar="TENANT", help="Write the entry into tenants.yaml, as a key of this tenant.")
@_TENANTS
def new(key_id: str, env: str, expires: str | None, tenant: str | None, tenants: Path | None) -> None:
    """Make a key, and print it once, with the entry for tenants.yaml that makes it known.

    The key goes to standard output and is stored nowhere; the entry holds only its SHA-256. ID is what logs call the key, such
    as k1 or 2027-01. To rotate: make a second key with --write, let the callers change over, then revoke the first.

    With --write, comments and order of the file stay. Where that can't be done safely, nothing is written, the entry is printed
    instead, and the exit code is 1.
    """
    try:
        key, sha256 = new_key(env, key_id)
    except ValueError as error:
        fail([str(error)])
    entry = {"id": key_id, "sha256": sha256, **({"expires_at": expires} if expires else {})}
    if tenant is None:
        _show(key, entry)
        return
    try:
        file = add_key(_path(tenants), tenant, entry)
    except TenantsInvalid as invalid:
        fail(map(str, invalid.faults))
    except NotRevised as refused:
        _show(key, entry)
        fail([f"not written: {refused}"])
    click.echo(f"{file}: tenant {tenant} has the key {key_id} now. It is not shown again:", err=True)
    click.echo(key)


def _show(key: str, entry: Entry) -> None:
    click.echo("The key; it is not shown again:", err=True)
    click.echo(key)
    click.echo("\nIts entry, under `keys:` of a tenant in tenants.yaml:", err=True)
    click.echo(yaml.safe_dump([entry], sort_keys=False), err=True, nl=False)


@keys.command("list")
@_TENANTS
def list_keys(tenants: Path | None) -> None:
    """Say of each key whose it is, whether it is valid now, and when it ends.

    Only ids are shown: the keys themselves are nowhere.
    """
    rows = [("TENANT", "KEY", "STATE", "EXPIRES"), *map(_row, _credentials(tenants))]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        click.echo("  ".join(word.ljust(width) for word, width in zip(row, widths, strict=True)).rstrip())


def _row(credential: Credential) -> tuple[str, str, str, str]:
    now = datetime.now(UTC).timestamp()
    state = "expired" if credential.expires_at <= now else "not yet" if now < credential.not_before else "valid"
    ends = "never" if credential.expires_at == float("inf") else _date(credential.expires_at)
    if state == "not yet":
        state = f"not before {_date(credential.not_before)}"
    return credential.principal.tenant.id, credential.principal.key_id, state, ends


def _date(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@keys.command()
@_TENANTS
def verify(tenants: Path | None) -> None:
    """Read a key from standard input, and say whose it is, or what is wrong with it.

    Tells a mistyped key from an unknown one without asking anybody.
    """
    from app.tenancy.directory import Directory

    text = sys.stdin.readline().strip()
    principal = None
    try:
        read_key(text)
        principal = Directory(_path(tenants)).authenticate(text.encode())
    except KeyMalformed:
        fail(["this is not a key: keys look like ck_<env>_<id>_<secret>"])
    except KeyMistyped:
        fail(["this key is mistyped: its checksum does not fit"])
    except TenantsInvalid as invalid:
        fail(map(str, invalid.faults))
    if principal is None:
        fail(["this key is well-formed, but no tenant has it, or it has expired"])
    click.echo(f"tenant {principal.tenant.id}, key {principal.key_id}, scopes {', '.join(sorted(principal.scopes))}")


@keys.command()
@click.argument("tenant")
@click.argument("key_id", metavar="ID")
@_TENANTS
def revoke(tenant: str, key_id: str, tenants: Path | None) -> None:
    """Take a key out of tenants.yaml, for good; `conch keys list` shows the ids.

    Comments and order of the file stay. Where that can't be done safely, nothing is written and the exit code is 1: then take
    the entry out by hand.
    """
    try:
        file = remove_key(_path(tenants), tenant, key_id)
    except TenantsInvalid as invalid:
        fail(map(str, invalid.faults))
    except NotRevised as refused:
        fail([f"not revoked: {refused}"])
    click.echo(f"{file}: tenant {tenant} has no key {key_id} any more")


def _path(given: Path | None) -> Path:
    return given or settings_or_fail().tenants_file


def _credentials(tenants: Path | None) -> list[Credential]:
    try:
        return list(load(_path(tenants)).credentials.values())
    except TenantsInvalid as invalid:
        fail(map(str, invalid.faults))
