"""Prometheus's own opinion of the rules: that it can read them, and for each alert what makes it fire and what does not."""

import re
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.conftest import ROOT
from tests.deploy.dashboards import dashboards

pytestmark = pytest.mark.deploy

RULES = sorted((ROOT / "helm" / "conch" / "files" / "rules").glob("*.yaml"))


@dataclass(frozen=True)
class Case:
    alert: str
    minutes: int
    firing: dict[str, str]
    quiet: dict[str, str]
    labels: dict[str, str] = field(default_factory=dict)


CASES = [Case(**case) for case in yaml.safe_load(Path(__file__).with_name("alerts.yaml").read_text())]


@pytest.fixture(scope="module")
def promtool() -> str:
    found = shutil.which("promtool")
    if found is None:
        pytest.skip("NOT TESTED: no promtool here. As root, on Debian 12: apt install --no-install-recommends prometheus")
    return found


def said(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else re.sub(r"\n\s*\n", "\n", done.stdout + done.stderr)


def test_prometheus_reads_the_rules(promtool: str) -> None:
    assert said(promtool, "check", "rules", *map(str, RULES)) == ""


def test_every_alert_fires_for_its_reason_and_for_nothing_less(promtool: str, tmp_path: Path) -> None:
    severities = {rule["alert"]: rule["labels"]["severity"] for rule in alerts()}
    assert {case.alert for case in CASES} == severities.keys()
    tests = []
    for case in CASES:
        labels = {"alertname": case.alert, "alertstate": "firing", "severity": severities[case.alert], **case.labels}
        written = ",".join(f'{name}="{value}"' for name, value in sorted(labels.items()))
        for series, samples in ((case.firing, [{"labels": f"ALERTS{{{written}}}", "value": 1}]), (case.quiet, [])):
            seen = {
                "expr": f'ALERTS{{alertname="{case.alert}",alertstate="firing"}}',
                "eval_time": f"{case.minutes}m",
                "exp_samples": samples,
            }
            given = [{"series": name, "values": values} for name, values in series.items()]
            tests.append({"interval": "1m", "input_series": given, "promql_expr_test": [seen]})
    asked = {"rule_files": list(map(str, RULES)), "evaluation_interval": "1m", "tests": tests}
    (tmp_path / "test.yaml").write_text(yaml.safe_dump(asked))
    assert said(promtool, "test", "rules", str(tmp_path / "test.yaml")) == ""


def test_prometheus_reads_every_query_of_the_dashboards(promtool: str, tmp_path: Path) -> None:
    queries = [expr for dashboard in dashboards() for panel in dashboard.panels for expr in panel.queries.values()]
    rules = [{"record": f"q{at}", "expr": filled(expr)} for at, expr in enumerate(queries)]
    (tmp_path / "queries.yaml").write_text(yaml.safe_dump({"groups": [{"name": "queries", "rules": rules}]}))
    assert said(promtool, "check", "rules", str(tmp_path / "queries.yaml")) == ""


def alerts() -> list[dict[str, Any]]:
    files = (yaml.safe_load(path.read_text()) for path in RULES)
    return [rule for file in files for group in file["groups"] for rule in group["rules"] if "alert" in rule]


def filled(expr: str, interval: str = "5m") -> str:
    """As Grafana asks, with everything chosen."""
    return re.sub(r"\$(namespace|tenant|model)", ".*", expr.replace("$__rate_interval", interval))
