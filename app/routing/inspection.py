"""What `conch check` finds, before a gateway finds it the hard way."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from app.routing.chart import RoutesInvalid, read_chart
from app.routing.contract import Mismatch, bind
from app.routing.route import Route
from app.tenancy.directory import Directory
from app.tenancy.tenant import Tenant
from app.tenancy.tenants_file import TenantsInvalid
from app.triton.client import CallFailed, ChannelOptions, Endpoint
from app.triton.model import ConfigUnreadable, Model

_FLOOR = (2, 70)
"""Triton 26.06 calls itself 2.70; below it there are known holes (NVIDIA bulletin 5865)."""


@dataclass(slots=True)
class Report:
    """`faults` keep something from working; `remarks` are worth a look."""

    faults: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)


async def inspect(routes_file: Path, tenants_file: Path, repository: Path | None, triton: str | None) -> Report:
    report = Report()
    routes = _routes(routes_file, report)
    tenants = _tenants(tenants_file, report)
    report.remarks += _between(routes, tenants)
    if repository is not None:
        _check_repository(repository, routes, report)
    if triton is not None:
        await _check_live(triton, routes, report)
    return report


def _routes(path: Path, report: Report) -> Mapping[str, Route]:
    try:
        routes = read_chart(path)
    except RoutesInvalid as invalid:
        report.faults += invalid.faults
        return {}
    report.remarks.append(f"{path}: {len(routes)} routes")
    return routes


def _tenants(path: Path, report: Report) -> Mapping[str, Tenant]:
    try:
        tenants = Directory(path).tenants
    except TenantsInvalid as invalid:
        report.faults += [str(fault) for fault in invalid.faults]
        return {}
    report.remarks.append(f"{path}: {len(tenants)} tenants")
    return tenants


def _between(routes: Mapping[str, Route], tenants: Mapping[str, Tenant]) -> Iterator[str]:
    """What is right in each file and odd in both."""
    for tenant in tenants.values():
        visible = [route for route in routes.values() if tenant.may_see(route.name)]
        if routes and not visible:
            yield f"tenant {tenant.id}: its models match no route"
        for name in sorted(tenant.routes.keys() - routes.keys()):
            yield f"tenant {tenant.id}: it has limits for {name}, which is no route"
        burst = tenant.quota.characters_burst
        for route in visible:
            if burst is not None and burst < route.caps.characters:
                yield (
                    f"tenant {tenant.id}: characters_burst {burst} is below the {route.caps.characters} characters that"
                    f" {route.name} takes in a request; larger requests are refused with 422"
                )


def _check_repository(repository: Path, routes: Mapping[str, Route], report: Report) -> None:
    for route in routes.values():
        for target in route.targets:
            file = repository / target.ensemble / "config.pbtxt"
            where = f"route {route.name}: {target.ensemble}"
            try:
                model = Model.parse(file.read_text(encoding="utf-8"))
            except OSError as error:
                report.faults.append(f"{where}: {file}: {error.strerror}")
                continue
            except ConfigUnreadable as error:
                report.faults.append(f"{where}: {file}: {error}")
                continue
            _check_binding(where, route, model, report)
            _check_steps(where, repository, model, report)


def _check_steps(where: str, repository: Path, model: Model, report: Report) -> None:
    for step, version in model.steps:
        if not (repository / step / "config.pbtxt").is_file():
            report.faults.append(f"{where}: its step {step} is not in {repository}")
        if version < 0:
            report.remarks.append(f"{where}: its step {step} is not pinned to a version")


def _check_binding(where: str, route: Route, model: Model, report: Report) -> None:
    try:
        bind(route, model)
    except Mismatch as mismatch:
        report.faults += [f"{where}: {fault}" for fault in mismatch.faults]


async def _check_live(address: str, routes: Mapping[str, Route], report: Report) -> None:
    endpoint = Endpoint(address, ChannelOptions())
    try:
        version = (await endpoint.metadata()).version
        report.remarks.append(f"{address}: Triton {version}")
        if tuple(int(part) for part in version.split(".")[:2]) < _FLOOR:
            report.remarks.append(f"{address}: this Triton is older than 26.06, with known security holes: not for production")
        for route in routes.values():
            for target in route.targets:
                await _check_target(endpoint, route, target.ensemble, report)
    except CallFailed as failed:
        report.faults.append(f"{address}: {failed.failure.detail}")
    finally:
        await endpoint.close()


async def _check_target(endpoint: Endpoint, route: Route, ensemble: str, report: Report) -> None:
    where = f"route {route.name}: {ensemble} on {endpoint.address}"
    try:
        if not await endpoint.model_ready(ensemble):
            report.faults.append(f"{where}: it is not ready")
            return
        _check_binding(where, route, await endpoint.model(ensemble), report)
    except CallFailed as failed:
        if failed.failure.suspect == "endpoint":
            raise
        report.faults.append(f"{where}: {failed.failure.detail}")
