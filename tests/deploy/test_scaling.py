"""The rule that Tritons are scaled by, against the common one, as docs/scaling.md tells it."""

import pytest

from tests.conftest import ROOT
from tests.load.scaling import COMMON, RULES, SHIPPED, SLO, World, row

pytestmark = pytest.mark.deploy


@pytest.mark.parametrize(("name", "holds"), [(SHIPPED, True), (COMMON, False)])
def test_the_shipped_rule_holds_the_objective_and_the_common_one_does_not(name: str, holds: bool) -> None:
    world = World(RULES[name]).run()
    assert (world.good / world.asked >= SLO) == holds
    assert row(name, world) in (ROOT / "docs" / "scaling.md").read_text(), "the document tells of another run"
