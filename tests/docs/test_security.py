"""What docs/security.md says is shown by a test, is."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| ((?:API|V)\d[^|]*) \|[^|]*\|([^|]*)\|$", TEXT, re.MULTILINE)


@pytest.mark.parametrize(("demand", "shown"), ROWS, ids=[demand for demand, _ in ROWS])
def test_each_demand_is_shown_by_tests_that_exist(demand: str, shown: str) -> None:
    tests = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", shown)
    assert tests
    for file, name in tests:
        found = ast.walk(ast.parse((ROOT / file).read_text(encoding="utf-8")))
        names = {node.name for node in found if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
        assert name in names, f"{file}::{name}"


def test_each_of_the_ten_is_there() -> None:
    named = {number for demand, _ in ROWS for number in re.findall(r"API(\d+)", demand)}
    assert named == {str(number) for number in range(1, 11)}
