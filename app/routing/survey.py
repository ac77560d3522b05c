"""Keeps the table of routes true to what live Tritons say."""

import asyncio
import logging
from collections.abc import Mapping
from pathlib import Path

from app.routing.chart import RoutesInvalid, read_chart
from app.routing.contract import Mismatch, bind
from app.routing.route import Route, RouteTable, Serving
from app.triton.client import CallFailed, Endpoint
from app.triton.ensemble import Ensemble
from app.triton.model import Model

log = logging.getLogger("conch.routing")

_INTERVAL = 1.0
_RECHECK = 10
"""In how many rounds an endpoint that looks well is asked for its models' configurations again."""

Findings = dict[tuple[str, str], Ensemble | tuple[str, ...]]
"""By route and ensemble: what can be served, or why it can't."""


class Survey:
    """Asks every endpoint each second which ensembles are ready, and checks new ones against the routes.

    `table` is swapped whole. `ready` latches: once every required route could be served, losing Triton makes callers' requests
    503, and not the gateway unready.
    """

    def __init__(self, path: Path, routes: Mapping[str, Route], endpoints: tuple[Endpoint, ...]) -> None:
        self.routes = routes
        self.endpoints = endpoints
        self.table = RouteTable({name: Serving(route, faults=("not checked yet",)) for name, route in routes.items()})
        self.ready = False
        self.generation = 1
        self.reload_failures = 0
        self._path = path
        self._stamp = _stamp(path)
        self._found: dict[str, Findings] = {endpoint.address: {} for endpoint in endpoints}
        self._round = 0
        self._alarm = asyncio.Event()

    def alarm(self) -> None:
        """Look again at once."""
        self._alarm.set()

    async def watch(self) -> None:
        """Runs until it is cancelled."""
        while True:
            await self.look()
            try:
                await asyncio.wait_for(self._alarm.wait(), _INTERVAL)
                await asyncio.sleep(0.1)  # whatever broke one call breaks its neighbours too: one look for all of them
            except TimeoutError:
                pass
            self._alarm.clear()

    async def look(self) -> None:
        await self._reload()
        self._round += 1
        await asyncio.gather(*(self._examine(endpoint) for endpoint in self.endpoints))
        self._draw()

    async def _reload(self) -> None:
        stamp = _stamp(self._path)
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            self.routes = await asyncio.to_thread(read_chart, self._path)
        except RoutesInvalid as invalid:
            self.reload_failures += 1
            log.error("routes not reloaded, the former ones stay: %s", " | ".join(invalid.faults))
            return
        self.generation += 1
        self._found = {endpoint.address: {} for endpoint in self.endpoints}
        log.info("routes reloaded: generation %d, %d routes", self.generation, len(self.routes))

    async def _examine(self, endpoint: Endpoint) -> None:
        try:
            if not endpoint.reachable:
                endpoint.version = (await endpoint.metadata()).version
                self._found[endpoint.address] = {}
            endpoint.reachable = True
            if self._round % _RECHECK == 0:
                self._found[endpoint.address] = {}
            for name in {target.ensemble for route in self.routes.values() for target in route.targets}:
                await self._examine_ensemble(endpoint, name)
        except CallFailed as failed:
            if endpoint.reachable or self._round == 1:
                log.warning("endpoint %s can't be asked: %s", endpoint.address, failed.failure.name)
            endpoint.reachable = False
            endpoint.serving = frozenset()

    async def _examine_ensemble(self, endpoint: Endpoint, name: str) -> None:
        found = self._found[endpoint.address]
        routes = [route for route in self.routes.values() if name in {target.ensemble for target in route.targets}]
        try:
            if not await endpoint.model_ready(name):
                findings: Findings = {(route.name, name): (f"{name} is not ready on {endpoint.address}",) for route in routes}
            elif all(isinstance(found.get((route.name, name)), Ensemble) for route in routes):
                findings = {}
            else:
                model = await endpoint.model(name)
                findings = {(route.name, name): _bound(route, model) for route in routes}
        except CallFailed as failed:
            if failed.failure.suspect == "endpoint":
                raise
            findings = {
                (route.name, name): (f"{name} can't be served on {endpoint.address}: {failed.failure.name}",)
                for route in routes
            }
        found.update(findings)
        if any(isinstance(found.get((route.name, name)), Ensemble) for route in routes):
            endpoint.serving |= {name}
        else:
            endpoint.serving -= {name}

    def _draw(self) -> None:
        servings = {name: self._serving(route) for name, route in self.routes.items()}
        for name, serving in servings.items():
            former = self.table.servings.get(name)
            if former is None or bool(former.ensembles) != bool(serving.ensembles) or former.faults != serving.faults:
                _tell(serving)
        self.table = RouteTable(servings)
        self.ready = self.ready or all(serving.ensembles for serving in servings.values() if serving.route.required)

    def _serving(self, route: Route) -> Serving:
        ensembles: list[tuple[Ensemble, int]] = []
        faults: list[str] = []
        for target in route.targets:
            agreed: Ensemble | None = None
            for endpoint in self.endpoints:
                finding = self._found[endpoint.address].get((route.name, target.ensemble))
                if not endpoint.reachable:
                    faults.append(f"{endpoint.address} can't be reached")
                elif isinstance(finding, tuple):
                    faults.extend(finding)
                elif finding is not None and agreed is not None and finding != agreed:
                    faults.append(f"{target.ensemble} on {endpoint.address} differs from the other endpoints'")
                    endpoint.serving -= {target.ensemble}
                elif finding is not None and target.ensemble in endpoint.serving:
                    agreed = agreed or finding
            if agreed is not None and target.weight:
                ensembles.append((agreed, target.weight))
        reachable = any(endpoint.reachable for endpoint in self.endpoints)
        return Serving(route, tuple(ensembles), tuple(dict.fromkeys(faults)), reachable)


def _bound(route: Route, model: Model) -> Ensemble | tuple[str, ...]:
    try:
        return bind(route, model)
    except Mismatch as mismatch:
        return mismatch.faults


def _tell(serving: Serving) -> None:
    if serving.ensembles:
        log.info("route %s is served%s", serving.route.name, "".join(f"; {fault}" for fault in serving.faults))
    else:
        log.warning("route %s can't be served: %s", serving.route.name, "; ".join(serving.faults))


def _stamp(path: Path) -> tuple[int, int]:
    try:
        stat = path.stat()
    except OSError:
        return (0, 0)
    return (stat.st_mtime_ns, stat.st_size)
