"""What exists is documented, and what is documented exists."""

import re
from pathlib import Path

import click
import pytest

from app.cli import main
from app.errors import family
from app.settings import Settings
from app.telemetry.metrics import Metrics

ROOT = Path(__file__).resolve().parents[2]


def text(name: str) -> str:
    return (ROOT / "docs" / name).read_text(encoding="utf-8")


def test_every_setting_is_documented_with_its_default_and_no_other_is() -> None:
    rows = dict(re.findall(r"^\| `(CONCH_\w+)` \| (?:`([^`]*)`|none) \|", text("settings.md"), re.MULTILINE))
    defaults = {f"CONCH_{name.upper()}": field.default for name, field in Settings.model_fields.items()}
    assert rows == {name: shown(default) for name, default in defaults.items()}


def shown(default: object) -> str:
    if default is None:
        return ""
    if isinstance(default, tuple):
        return ",".join(default)
    return str(default).lower() if isinstance(default, bool) else f"{default:g}" if isinstance(default, float) else str(default)


def test_every_setting_says_what_it_is_for() -> None:
    assert [name for name, field in Settings.model_fields.items() if not field.description] == []


def test_every_error_has_a_section_with_its_status_and_no_other_has_one() -> None:
    sections = dict(re.findall(r"^## (\w+)\n\*\*(\d{3})", text("errors.md"), re.MULTILINE))
    assert sections == {kind.code: str(kind.status) for kind in family()}


def test_codes_are_stable_words_and_unique() -> None:
    codes = [kind.code for kind in family()]
    assert len(codes) == len(set(codes))
    assert all(re.fullmatch(r"[a-z_]+", code) for code in codes)


def test_every_metric_is_documented_with_its_labels_and_no_other_is() -> None:
    rows = re.findall(r"^\| `(conch_\w+)` \| (\w+)(?:: ((?:`\w+`(?:, )?)+))? \|", text("metrics.md"), re.MULTILINE)
    documented = {name: (kind, tuple(re.findall(r"\w+", labels))) for name, kind, labels in rows}
    instruments = Metrics().registry.instruments
    assert documented == {f"{each.name}{'_total' * (each.kind == 'counter')}": (each.kind, each.names) for each in instruments}


def test_every_label_of_a_metric_is_documented_with_its_bound() -> None:
    documented = set(re.findall(r"^\| `(\w+)` \| .+ \| .*\w.* \|$", text("metrics.md").partition("| label |")[2], re.MULTILINE))
    assert documented == {label for each in Metrics().registry.instruments for label in each.names}


def commands(group: click.Command, path: tuple[str, ...] = ()) -> list[tuple[str, click.Command]]:
    if isinstance(group, click.Group):
        return [found for name, command in group.commands.items() for found in commands(command, (*path, name))]
    return [(" ".join(path), group)]


@pytest.mark.parametrize(("name", "command"), commands(main))
def test_every_command_and_option_has_a_help_that_teaches(name: str, command: click.Command) -> None:
    assert command.help is not None
    assert len(command.help) > 60, name
    assert [option.name for option in command.params if isinstance(option, click.Option) and not option.help] == []


def test_every_link_between_documents_leads_somewhere() -> None:
    broken = []
    for document in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        targets = re.findall(r"\]\((?!https?://|#)([^)#]+)", document.read_text(encoding="utf-8"))
        broken += [f"{document.name}: {target}" for target in targets if not (document.parent / target).exists()]
    assert broken == []


def test_nothing_beside_the_agreed_lies_in_the_root() -> None:
    agreed = {
        *("pyproject.toml", "app", "model_repository", "helm", "tests", "Dockerfile", "compose.yaml", "README.md", "Makefile"),
        *("CHANGELOG.md", "LICENSE", "NOTICE", "config", "docs", "requirements"),
    }
    assert {entry.name for entry in ROOT.iterdir() if not entry.name.startswith(".")} <= agreed
