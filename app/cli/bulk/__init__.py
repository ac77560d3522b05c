"""`conch bulk`: a file of any size through the gateway."""

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from app.cli.bulk.source import Columns, Source, SourceUnusable
from app.cli.outcome import fail

if TYPE_CHECKING:
    from app.cli.bulk.agreement import Agreement
    from app.cli.bulk.journey import Order

_FILE = click.Path(path_type=Path, exists=True, dir_okay=False)
_NOT_ALL, _NO_AGREEMENT, _INTERRUPTED = 3, 4, 130


class _Option(click.ParamType[tuple[str, str]]):
    name = "NAME=VALUE"

    def convert(
        self, value: str | tuple[str, str], param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str]:
        if isinstance(value, tuple):
            return value
        name, equals, rest = value.partition("=")
        if not name or not equals:
            self.fail("say NAME=VALUE, such as top_k=3", param, ctx)
        return name, rest


def _address(_: click.Context, __: click.Parameter, url: str) -> str:
    if not url.startswith(("http://", "https://")):
        raise click.BadParameter("say http://HOST:PORT, or https://")
    return url


@click.command(short_help="Send a file of texts to a model.")
@click.argument("file", type=click.Path(path_type=Path, allow_dash=True, exists=True, dir_okay=False))
@click.option("--model", required=True, help="The public name of the model; `GET /v1/models` lists them.")
@click.option("--output", "-o", type=click.Path(path_type=Path), help="Default: FILE's name with the model's, and .ndjson.")
@click.option("--column", default="text", show_default=True, help="The column or member that holds the text.")
@click.option("--id", "id_column", default="id", show_default=True, help="The one that names the record, if there is one.")
@click.option("--format", "kind", type=click.Choice(["ndjson", "csv"]), help="What FILE is; default: as its name says.")
@click.option("--set", "options", type=_Option(), multiple=True, help="An option of the task, such as top_k=3; repeatable.")
@click.option(
    "--url",
    envvar="CONCH_URL",
    default="http://127.0.0.1:8080",
    show_default=True,
    callback=_address,
    help="The gateway; or CONCH_URL.",
)
@click.option("--key-file", type=_FILE, help="A file that holds the key and nothing else; or the key is in CONCH_KEY.")
@click.option("--posts", default=4, show_default=True, type=click.IntRange(1, 64), help="How many posts are under way at once.")
@click.option("--lines", default=1000, show_default=True, type=click.IntRange(1), help="The most lines of a post.")
@click.option("--bytes", "size", default=1_000_000, show_default=True, type=click.IntRange(1), help="The most bytes of a post.")
@click.option("--timeout", default=300, show_default=True, type=click.IntRange(1, 3600), help="Seconds that a post may take.")
@click.option(
    "--patience", default=600, show_default=True, type=click.IntRange(0), help="Seconds without any answer, to give up."
)
@click.option("--expect", metavar="COLUMN", help="Compare the answers with those of an earlier system, in this column.")
@click.option("--tolerance", default=0.01, show_default=True, help="How far scores, and cosines from 1, may be apart.")
@click.option("--of-label", default="", help="The label whose score an expected number is; default: the best one.")
@click.option("--at-least", default=0.0, show_default=True, help="Exit with 4 where a smaller share agrees, such as 0.99.")
@click.option("--restart", is_flag=True, help="Begin anew, and write over what is there.")
def bulk(
    file: Path,
    model: str,
    output: Path | None,
    column: str,
    id_column: str,
    kind: str | None,
    key_file: Path | None,
    expect: str | None,
    tolerance: float,
    of_label: str,
    at_least: float,
    *,
    restart: bool,
    **order: Any,
) -> None:
    """Send the texts of FILE to a model, and write one line for each: its answer, or its error.

    FILE is NDJSON or CSV, plain or .gz, of any size; - is standard input. Break it off as you like, and run the same command
    again: it goes on where it was, and no line is lost or there twice. It waits where the tenant's limits ask for that, and
    tries again what may be tried again.

    Exit codes: 0 every line has its answer, 1 it could not go on and says why, 2 the command was not understood, 3 some lines
    have an error for an answer, 4 with --at-least: too few agree, 130 it was interrupted.
    """
    from app.cli.bulk.agreement import Agreement
    from app.cli.bulk.journey import Order

    source = Source(file, kind, Columns(column, id_column, expect))
    if source.is_stream and (output is None or expect):
        raise click.UsageError("from standard input, say --output; and there is nothing to compare a second time")
    out = output or file.with_name(f"{file.name.split('.')[0]}.{model}.ndjson")
    code = _send(source, out, Order(model=model, key=_key(key_file), **order), restart=restart)
    if expect:
        agreement = Agreement(tolerance, of_label)
        _compare(source, out, agreement)
        code = _NO_AGREEMENT if agreement.share < at_least else code
    sys.exit(code)


def _key(file: Path | None) -> str:
    key = file.read_text().strip() if file else os.environ.get("CONCH_KEY", "")
    return key or fail(["there is no key: say --key-file, or set CONCH_KEY"])


def _send(source: Source, out: Path, order: "Order", *, restart: bool) -> int:
    import asyncio

    from app.cli.bulk.courier import Broken
    from app.cli.bulk.journal import Journal, JournalMismatch
    from app.cli.bulk.journey import Journey

    columns = {"text": source.columns.text, "id": source.columns.id}
    errand = {"input": source.identity(), "columns": columns, "model": order.model, "options": order.options}
    try:
        with Journal(out, errand, restart=restart) as journal:
            try:
                asyncio.run(Journey(source, journal, order).run())
            except Broken as broken:
                fail([f"{broken} (the same command goes on from line {journal.lines})"])
            except KeyboardInterrupt:
                click.echo(f"interrupted; the same command goes on from line {journal.lines}", err=True)
                sys.exit(_INTERRUPTED)
    except (JournalMismatch, SourceUnusable, OSError) as error:
        fail([str(error)])
    failed = journal.lines - journal.outcomes["ok"]
    codes = ", ".join(f"{code} {count}" for code, count in journal.outcomes.most_common() if code != "ok")
    click.echo(f"{out}: {journal.lines} lines, {failed} of them errors{f' ({codes})' if codes else ''}", err=True)
    return _NOT_ALL if failed else 0


def _compare(source: Source, out: Path, agreement: "Agreement") -> None:
    """Reads both files once more, so that it is the same whether the run was broken off or not."""
    try:
        with out.open("rb") as answers:
            for (_, row), answer in zip(source.records(), answers, strict=True):
                agreement.add((row or {}).get(source.columns.expected or ""), json.loads(answer))
    except SourceUnusable as error:
        fail([str(error)])
    for line in agreement.report():
        click.echo(line)
