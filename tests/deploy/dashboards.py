"""Grafana's dashboards from helm/dashboards/*.yaml: `python -m tests.deploy.dashboards` writes helm/conch/files/dashboards/."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

HELM = Path(__file__).resolve().parents[2] / "helm"
WRITTEN = HELM / "conch" / "files" / "dashboards"
WIDTH, HEIGHT, ACROSS = 8, 8, 3
SOURCE = {"type": "prometheus", "uid": "${datasource}"}

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Panel:
    """`queries` by their legend."""

    title: str
    description: str
    unit: str
    queries: dict[str, str]
    stacked: bool = False
    exemplars: bool = False

    def json(self, place: int) -> Json:
        custom: Json = {"fillOpacity": 20 if self.stacked else 5, "lineWidth": 1, "showPoints": "never"}
        if self.stacked:
            custom["stacking"] = {"mode": "normal"}
        return {
            "id": place + 1,
            "type": "timeseries",
            "title": self.title,
            "description": self.description,
            "datasource": SOURCE,
            "gridPos": {"h": HEIGHT, "w": WIDTH, "x": place % ACROSS * WIDTH, "y": place // ACROSS * HEIGHT},
            "fieldConfig": {"defaults": {"unit": self.unit, "min": 0, "custom": custom}, "overrides": []},
            "options": {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi", "sort": "desc"}},
            "targets": [
                {"refId": chr(65 + at), "expr": expr, "legendFormat": legend, "exemplar": self.exemplars, "datasource": SOURCE}
                for at, (legend, expr) in enumerate(self.queries.items())
            ],
        }


@dataclass(frozen=True, slots=True)
class Dashboard:
    name: str
    title: str
    panels: tuple[Panel, ...]
    variables: dict[str, str]

    @classmethod
    def read(cls, path: Path) -> "Dashboard":
        told = yaml.safe_load(path.read_text(encoding="utf-8"))
        return cls(path.stem, told["title"], tuple(Panel(**panel) for panel in told["panels"]), told.get("variables", {}))

    def text(self) -> str:
        variables = {"namespace": "label_values(conch_build_info, namespace)", **self.variables}
        source = {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Prometheus"}
        dashboard = {
            "uid": f"conch-{self.name}",
            "title": f"Conch: {self.title}",
            "tags": ["conch"],
            "schemaVersion": 39,
            "editable": False,
            "refresh": "30s",
            "time": {"from": "now-3h", "to": "now"},
            "graphTooltip": 1,
            "links": [{"type": "dashboards", "tags": ["conch"], "title": "Conch", "asDropdown": True, "keepTime": True}],
            "templating": {"list": [source, *(_variable(*each) for each in variables.items())]},
            "panels": [panel.json(at) for at, panel in enumerate(self.panels)],
        }
        return json.dumps(dashboard, indent=1, ensure_ascii=False) + "\n"


def _variable(name: str, query: str) -> Json:
    return {
        "name": name,
        "type": "query",
        "datasource": SOURCE,
        "query": {"query": query, "refId": name},
        "definition": query,
        "refresh": 2,
        "includeAll": True,
        "allValue": ".*",
        "multi": True,
        "current": {"text": "All", "value": "$__all"},
        "sort": 1,
    }


def dashboards() -> Iterator[Dashboard]:
    return map(Dashboard.read, sorted((HELM / "dashboards").glob("*.yaml")))


if __name__ == "__main__":
    for dashboard in dashboards():
        (WRITTEN / f"{dashboard.name}.json").write_text(dashboard.text(), encoding="utf-8")
