"""The commands that read, check and draft what a gateway is told."""

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import click

from app.cli.outcome import fail, settings_or_fail
from app.settings import Settings, strangers
from app.tenancy.tenants_file import TenantsInvalid


@click.command(short_help="Check routes, tenants and tokens.")
@click.option("--routes", type=click.Path(path_type=Path), help="The routes; default: CONCH_ROUTES_FILE.")
@click.option("--tenants", type=click.Path(path_type=Path), help="The tenants; default: CONCH_TENANTS_FILE.")
@click.option("--tokens", type=click.Path(path_type=Path), help="The issuers of tokens; default: CONCH_TOKENS_FILE, or none.")
@click.option("--repository", type=click.Path(path_type=Path), help="A model repository to check against, offline.")
@click.option("--triton", metavar="HOST:PORT", help="A live Triton's gRPC address to check against.")
def check(routes: Path | None, tenants: Path | None, tokens: Path | None, repository: Path | None, triton: str | None) -> None:
    """Check routes, tenants and tokens, and the routes against a model repository or a live Triton.

    Where you name one of the files, a default that isn't there is left out. Exits with 1 when anything is wrong, and says each
    fault in one line.
    """
    from app.house import channel_options
    from app.routing.inspection import inspect

    settings = settings_or_fail()
    if routes or tenants or tokens:
        routes, tenants = routes or _meant(settings, "routes_file"), tenants or _meant(settings, "tenants_file")
    else:
        routes, tenants = settings.routes_file, settings.tenants_file
    report = asyncio.run(inspect(routes, tenants, repository, triton, channel_options(settings)))
    tokens = tokens or settings.tokens_file
    faults = [*report.faults, *(_faults_of_tokens(tokens) if tokens else ())]
    for line in (*strangers(os.environ), *report.remarks):
        click.echo(line)
    if faults:
        fail(faults)
    click.echo("all is well")


def _meant(settings: Settings, name: str) -> Path | None:
    """A file that nobody named: it counts where the environment says it, or where it is."""
    file: Path = getattr(settings, name)
    return file if name in settings.model_fields_set or file.exists() else None


def _faults_of_tokens(file: Path) -> Iterator[str]:
    from app.tenancy.issuer import read_issuers

    try:
        read_issuers(file)
    except TenantsInvalid as invalid:
        yield from map(str, invalid.faults)


@click.group()
def routes() -> None:
    """Work with routes.yaml."""


@routes.command()
@click.option("--triton", required=True, metavar="HOST:PORT", help="The gRPC address of a running Triton.")
def draft(triton: str) -> None:
    """Print a first routes.yaml from what a running Triton says of its models.

    Every model that takes one text and batches becomes a route; what can't be guessed is left as a comment.
    """
    from app.house import channel_options
    from app.routing.draft import draft_routes
    from app.triton.client import CallFailed

    options = channel_options(settings_or_fail())
    try:
        click.echo(asyncio.run(draft_routes(triton, options)), nl=False)
    except CallFailed as failed:
        fail([f"{triton}: {failed.failure.detail}"])
