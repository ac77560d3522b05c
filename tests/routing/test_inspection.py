"""What `conch check` says of routes and tenants that are right each for itself."""

from pathlib import Path

import pytest

from app.routing.inspection import inspect
from app.triton.client import ChannelOptions

ROUTES = "routes: {noop: {task: classify, targets: [{ensemble: noop}], limits: {characters: 1000}}}\n"


@pytest.mark.parametrize(
    ("limits", "burst"),
    [
        ("{characters_per_minute: 60000, characters_burst: 999}", 999),
        ("{characters_per_minute: 999}", 999),  # a minute's characters, where no burst is given
        ("{characters_per_minute: 999, characters_burst: 1000}", None),
        ("{characters_per_minute: 1000}", None),
        ("{requests_per_second: 1}", None),
        ("{routes: {noop: {characters_per_minute: 500}}}", 500),
        ("{characters_per_minute: 700, routes: {noop: {characters_per_minute: 900}}}", 700),
    ],
)
async def test_a_plan_whose_burst_is_below_what_a_route_takes_is_pointed_out(
    tmp_path: Path, limits: str, burst: int | None
) -> None:
    routes, tenants = tmp_path / "routes.yaml", tmp_path / "tenants.yaml"
    routes.write_text(ROUTES)
    tenants.write_text(f"plans: {{p: {limits}}}\ntenants: {{acme: {{plan: p, models: ['*'], keys: []}}}}\n")
    report = await inspect(routes, tenants, None, None, ChannelOptions())
    assert report.faults == []
    said = [remark for remark in report.remarks if remark.startswith("tenant")]
    assert len(said) == (burst is not None)
    assert all(f"tenant acme: characters_burst {burst} is below the 1000 characters that noop takes" in line for line in said)
