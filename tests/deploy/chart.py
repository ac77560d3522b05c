"""The chart as tests see it: what it renders, by the part of the release that it is for."""

import os
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest

from tests.deploy.helm import CHART, Helm, Manifest

CASES = sorted(file.name.removesuffix("-values.yaml") for file in CHART.glob("ci/*-values.yaml"))
HELM = Helm.major(4)

NEEDS_HELM = pytest.mark.skipif(
    not HELM.binary.exists() and "CI" not in os.environ, reason="there is no Helm here: make .venv/helm/installed"
)


def values(case: str) -> str:
    return str(CHART / "ci" / f"{case}-values.yaml")


@cache
def rendered(case: str, *options: str) -> list[Manifest]:
    return HELM.manifests("-f", values(case), *options)


def of(case: str, kind: str, *options: str) -> dict[str, Manifest]:
    """By the part that they are of."""
    found = [manifest for manifest in rendered(case, *options) if manifest["kind"] == kind]
    return {manifest["metadata"]["labels"]["app.kubernetes.io/component"]: manifest for manifest in found}


def pods(case: str) -> dict[str, dict[str, Any]]:
    """Templates of pods, by part."""
    tests = {part: {"metadata": pod["metadata"], "spec": pod["spec"]} for part, pod in of(case, "Pod").items()}
    return tests | {part: deployment["spec"]["template"] for part, deployment in of(case, "Deployment").items()}


def containers(case: str) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    for pod in pods(case).values():
        yield from ((pod["spec"], container) for container in pod["spec"]["containers"])


def environment(case: str, part: str = "gateway") -> dict[str, dict[str, Any]]:
    return {variable["name"]: variable for variable in pods(case)[part]["spec"]["containers"][0]["env"]}


def chosen(selector: dict[str, Any], case: str) -> list[str]:
    wanted = selector["matchLabels"].items()
    return [part for part, pod in pods(case).items() if wanted <= pod["metadata"]["labels"].items()]
