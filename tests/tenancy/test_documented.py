import re
from pathlib import Path

from app.tenancy.snapshot import load
from app.tenancy.tenants_file import KeyEntry, LimitsEntry, PlanEntry, TenantEntry

PAGE = Path(__file__).parents[2] / "docs" / "tenants.md"


def test_the_walk_through_is_a_valid_file(tmp_path: Path) -> None:
    for i, snippet in enumerate(re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)):
        file = tmp_path / f"{i}.yaml"
        file.write_text(snippet)
        assert load(file).tenants


def test_every_field_is_explained() -> None:
    explained = set(re.findall(r"`(\w+)`", PAGE.read_text()))
    fields = {field for entry in (LimitsEntry, PlanEntry, TenantEntry, KeyEntry) for field in entry.model_fields}
    assert fields - explained == set()
