"""The command line. Exit codes: 0 all is well, 1 something is wrong and was said, 2 the command was not understood."""

import click

from app import __version__
from app.cli.bulk import bulk
from app.cli.configuration import check, routes
from app.cli.keys import keys
from app.cli.models import models
from app.cli.openapi import openapi
from app.cli.processes import serve, up

_CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 110, "auto_envvar_prefix": None}


@click.group(context_settings=_CONTEXT)
@click.version_option(__version__, prog_name="conch", message="%(prog)s %(version)s")
def main() -> None:
    """Conch, the REST front door of NVIDIA Triton for text models.

    Settings come from CONCH_* environment variables; docs/settings.md lists them.
    """


for command in (serve, up, check, routes, keys, models, bulk, openapi):
    main.add_command(command)
