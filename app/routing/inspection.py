"""What `conch check` finds, before a gateway finds it the hard way."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from app.admission.terms import characters_burst_of
from app.routing.chart import RoutesInvalid, read_chart
from app.routing.contract import Mismatch, bind
from app.routing.route import Route
from app.tenancy.directory import Directory
from app.tenancy.tenant import Quota, Tenant
from app.tenancy.tenants_file import TenantsInvalid
from app.triton.client import CallFailed, ChannelOptions, Endpoint
from app.triton.model import ConfigUnreadable, Model
from app.triton.version import is_outdated


@dataclass(slots=True)
class Report:
    """`faults` keep something from working; `remarks` are worth a look."""

    faults: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)


async def inspect(
    routes_file: Path | None, tenants_file: Path | None, repository: Path | None, triton: str | None, options: ChannelOptions
) -> Report:
    """Without one of the files, of what is in it nothing is said."""
    report = Report()
    routes = _routes(routes_file, report) if routes_file else {}
    tenants = _tenants(tenants_file, report) if tenants_file else {}
    report.remarks += _between(routes, tenants)
    if repository is not None:
        _check_repository(repository, routes, report)
    if triton is not None:
        await _check_live(triton, options, routes, report)
    return report


def _routes(path: Path, report: Report) -> Mapping[str, Route]:
    try:
        routes = read_chart(path)
    except RoutesInvalid as invalid:
        report.faults += invalid.faults
        return {}
    report.remarks.append(f"{path}: {_counted(len(routes), 'route')}")
    return routes


def _tenants(path: Path, report: Report) -> Mapping[str, Tenant]:
    try:
        tenants = Directory(path).tenants
    except TenantsInvalid as invalid:
        report.faults += [str(fault) for fault in invalid.faults]
        return {}
    report.remarks.append(f"{path}: {_counted(len(tenants), 'tenant')}")
    return tenants


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _between(routes: Mapping[str, Route], tenants: Mapping[str, Tenant]) -> Iterator[str]:
    """What is right in each file and odd in both."""
    for tenant in tenants.values():
        visible = [route for route in routes.values() if tenant.may_see(route.name)]
        if routes and not visible:
            yield f"tenant {tenant.id}: its models match no route"
        for name in sorted(tenant.routes.keys() - routes.keys()):
            yield f"tenant {tenant.id}: it has limits for {name}, which is no route"
        for route in visible:
            burst = _characters_burst(tenant, route)
            if burst is not None and burst < route.caps.characters:
                yield (
                    f"tenant {tenant.id}: characters_burst {burst} is below the {route.caps.characters} characters that"
                    f" {route.name} takes in a request; larger requests are refused with 422"
                )


def _characters_burst(tenant: Tenant, route: Route) -> int | None:
    quotas = (tenant.quota, tenant.routes.get(route.name, Quota()))
    paced = [characters_burst_of(quota) for quota in quotas if quota.characters_per_minute is not None]
    return min(paced, default=None)


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
            _check_binding(where, route, model, _check_steps(where, repository, model, report), report)


def _check_steps(where: str, repository: Path, model: Model, report: Report) -> dict[str, Model]:
    """The steps whose configs can be read."""
    steps = {}
    for step, version in model.steps:
        file = repository / step / "config.pbtxt"
        try:
            steps[step] = Model.parse(file.read_text(encoding="utf-8"))
        except OSError:
            report.faults.append(f"{where}: its step {step} is not in {repository}")
        except ConfigUnreadable as error:
            report.faults.append(f"{where}: {file}: {error}")
        if version < 0:
            report.remarks.append(f"{where}: its step {step} is not pinned to a version")
    return steps


def _check_binding(where: str, route: Route, model: Model, steps: Mapping[str, Model], report: Report) -> None:
    try:
        ensemble = bind(route, model, steps)
    except Mismatch as mismatch:
        report.faults += [f"{where}: {fault}" for fault in mismatch.faults]
    else:
        report.remarks += [f"{where}: {remark}" for remark in ensemble.remarks]


async def _check_live(address: str, options: ChannelOptions, routes: Mapping[str, Route], report: Report) -> None:
    endpoint = Endpoint(address, options)
    try:
        version = (await endpoint.metadata()).version
        report.remarks.append(f"{address}: Triton {version}")
        if is_outdated(version):
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
        model = await endpoint.model(ensemble)
        _check_binding(where, route, model, await endpoint.members(model), report)
    except CallFailed as failed:
        if failed.failure.suspect == "endpoint":
            raise
        report.faults.append(f"{where}: {failed.failure.detail}")
