"""docs/kubernetes.md: its commands are Helm's, its values are the chart's."""

import re
import shlex
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.conftest import ROOT
from tests.deploy.chart import HELM, NEEDS_HELM

pytestmark = NEEDS_HELM

TEXT = (ROOT / "docs" / "kubernetes.md").read_text(encoding="utf-8")
OF_A_CLUSTER = ("--install", "--create-namespace", "--wait", "--timeout", "40m")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "helm").symlink_to(ROOT / "helm")
    for name in ("routes", "tenants"):
        (tmp_path / f"{name}.yaml").symlink_to(ROOT / "config" / f"{name}.yaml")
    (shown,) = re.findall(r"^```yml\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
    (tmp_path / "conch.yaml").write_text(shown)
    return tmp_path


@pytest.mark.parametrize("line", re.findall(r"^\$ (helm (?:lint|template|upgrade) .+)$", TEXT, re.MULTILINE))
def test_a_command_works_as_pasted(line: str, folder: Path) -> None:
    """There is no cluster here: what would be installed is rendered."""
    words = [word for word in shlex.split(line)[1:] if word not in OF_A_CLUSTER]
    words[0] = words[0].replace("upgrade", "template")
    done = subprocess.run((HELM.binary, *words), cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert words[0] == "lint" or "registry.example.com/conch:0." in done.stdout


def test_the_values_that_it_names_exist() -> None:
    values = yaml.safe_load((ROOT / "helm" / "conch" / "values.yaml").read_text())
    named = set(re.findall(rf"`((?:{'|'.join(values)})(?:\.[a-zA-Z]+)+)", TEXT))
    assert len(named) > 15
    for path in named:
        found = values
        for key in path.split("."):
            assert key in found, path
            found = found[key]
