"""Dashboards, rules and runbook speak of the metrics that there are, and of each other."""

import re
from typing import Any

import yaml

from app.telemetry.metrics import Metrics
from tests.conftest import ROOT
from tests.deploy.dashboards import WRITTEN, dashboards

RULES = sorted((ROOT / "helm" / "conch" / "files" / "rules").glob("*.yaml"))
RUNBOOK = (ROOT / "docs" / "runbook.md").read_text()


def rules() -> list[dict[str, Any]]:
    return [rule for path in RULES for group in yaml.safe_load(path.read_text())["groups"] for rule in group["rules"]]


def test_dashboards_are_as_they_are_described() -> None:
    """`python -m tests.deploy.dashboards` writes them."""
    assert {path.name: path.read_text() for path in WRITTEN.iterdir()} == {f"{d.name}.json": d.text() for d in dashboards()}


def test_every_panel_says_what_it_shows_and_in_what_unit() -> None:
    for dashboard in dashboards():
        titles = [panel.title for panel in dashboard.panels]
        assert len(set(titles)) == len(titles)
        assert [panel.title for panel in dashboard.panels if not (panel.description and panel.unit and panel.queries)] == []


def test_every_alert_has_a_section_in_the_runbook_and_every_section_an_alert() -> None:
    alerts = [rule for rule in rules() if "alert" in rule]
    assert {rule["alert"] for rule in alerts} == set(re.findall(r"^## (\w+)\n[^\n]", RUNBOOK, re.MULTILINE))
    for rule in alerts:
        assert rule["labels"].keys() == {"severity"}
        assert rule["annotations"].keys() == {"summary", "description", "runbook_url"}
        assert rule["annotations"]["runbook_url"] == f"docs/runbook.md#{rule['alert'].lower()}"


def test_what_is_held_back_for_another_alert_are_alerts_that_there_are() -> None:
    alerts = [rule["alert"] for rule in rules() if "alert" in rule]
    [written] = re.findall(r"^```yml\n(inhibit_rules:.*?)^```", RUNBOOK, re.MULTILINE | re.DOTALL)
    for rule in yaml.safe_load(written)["inhibit_rules"]:
        for matcher in (*rule["source_matchers"], *rule["target_matchers"]):
            for name in re.split(r" =~? ", matcher)[1].strip('"').split("|"):
                assert any(re.fullmatch(name, alert) for alert in alerts), name


def test_no_query_asks_for_a_metric_that_nobody_has() -> None:
    ours = {name for each in Metrics().registry.instruments for name in _samples(each.name, each.kind)}
    recorded = {rule["record"] for rule in rules() if "record" in rule}
    queries = [rule["expr"] for rule in rules()]
    queries += [expr for dashboard in dashboards() for panel in dashboard.panels for expr in panel.queries.values()]
    asked = {name for query in queries for name in re.findall(r"\bconch[_:][\w:]+", query)}
    assert asked - ours - recorded == set()
    assert recorded - asked == set(), "what nobody asks for need not be recorded"


def test_the_runbook_names_panels_that_there_are() -> None:
    titles = {panel.title for dashboard in dashboards() for panel in dashboard.panels}
    told = {" ".join(name.split()) for name in re.findall(r"(?<![*\w])\*([A-Z][^*]+)\*(?!\*)", RUNBOOK)}
    assert told - titles == set()


def _samples(name: str, kind: str) -> list[str]:
    return {"counter": [f"{name}_total"], "histogram": [f"{name}_bucket", f"{name}_sum", f"{name}_count"]}.get(kind, [name])
