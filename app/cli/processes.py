"""The commands that stay in the foreground."""

import sys
from pathlib import Path

import click

from app.cli.outcome import fail, settings_or_fail
from app.routing.chart import RoutesInvalid
from app.tenancy.tenants_file import TenantsInvalid


@click.command()
def serve() -> None:
    """Run one gateway in the foreground, until SIGTERM or Ctrl-C.

    It needs a Triton (CONCH_TRITON), the routes (CONCH_ROUTES_FILE) and the tenants (CONCH_TENANTS_FILE). Redis may come
    later (CONCH_REDIS_URL): until then limits are decided in the process.
    """
    from app.edge.certificate import CertificateUnusable
    from app.server import AddressUnusable
    from app.server import serve as run

    settings = settings_or_fail()
    try:
        run(settings)
    except (TenantsInvalid, RoutesInvalid) as invalid:
        fail(str(fault) for fault in invalid.faults)
    except (AddressUnusable, CertificateUnusable) as error:
        fail([str(error)])


@click.command(short_help="Run Redis, a real Triton and a gateway here.")
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

    settings = settings_or_fail()
    given = settings.model_fields_set
    redis_url = settings.redis_url if "redis_url" in given else None
    chosen = routes or (settings.routes_file if "routes_file" in given else None)
    sys.exit(run(Options(home, settings.listen, settings.admin_listen, redis_url, routes=chosen, traces=traces)))
