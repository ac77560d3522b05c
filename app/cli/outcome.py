"""How every command ends that can't do what it was asked for."""

import sys
from collections.abc import Iterable
from typing import NoReturn

import click
from pydantic import ValidationError

from app.settings import Settings


def fail(faults: Iterable[str]) -> NoReturn:
    """Says each fault in a line, and exits with 1."""
    for fault in faults:
        click.echo(f"{click.style('error', fg='red')}: {fault}", err=True)
    sys.exit(1)


def settings_or_fail() -> Settings:
    try:
        return Settings()
    except ValidationError as error:
        fail(f"CONCH_{str(fault['loc'][0]).upper()}: {fault['msg'].removeprefix('Value error, ')}" for fault in error.errors())
