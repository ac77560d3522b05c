"""Keeps the table of routes true to what live Tritons say."""

import asyncio
import logging
from collections.abc import Mapping
from pathlib import Path
from time import monotonic

from app.routing.chart import RoutesInvalid, read_chart
from app.routing.contract import Mismatch, bind
from app.routing.findings import Finding, Findings, Trial
from app.routing.route import Route, RouteTable, Serving, suffices
from app.triton.client import CallFailed, Endpoint
from app.triton.discovery import Roster
from app.triton.model import Model
from app.triton.status import LATE
from app.triton.version import is_outdated

log = logging.getLogger("conch.routing")

_INTERVAL = 1.0
_RECHECK = 10
"""In how many rounds an endpoint that looks well is asked for its models' configurations again."""


class Survey:
    """Asks every endpoint each second which ensembles are ready, and checks new ones against the routes.

    `table` is swapped whole. `ready` latches: once every required route could be served, losing Triton makes callers' requests
    503, and not the gateway unready. An endpoint that is slow to answer keeps nobody from hearing of the others.
    """

    def __init__(self, path: Path, routes: Mapping[str, Route], roster: Roster) -> None:
        self.routes = routes
        self.roster = roster
        self.table = RouteTable({name: Serving(route, faults=("not checked yet",)) for name, route in routes.items()})
        self.ready = False
        self.generation = 1
        self.reload_failures = 0
        self.refused = ""
        """Why the file, as it is now, can't be used."""
        self._path = path
        self._stamp = _stamp(path)
        self._findings = Findings()
        self._looks: dict[Endpoint, asyncio.Task[None]] = {}
        self._doubted: set[tuple[Endpoint, str]] = set()
        self._outdated: set[str] = set()
        self._round = 0
        self._alarm = asyncio.Event()
        self._silent: set[Endpoint] = set()

    def alarm(self) -> None:
        """Look again at once."""
        self._alarm.set()

    def doubt(self, endpoint: Endpoint, ensemble: str) -> None:
        """Look again at once, and take this ensemble's contract for unknown."""
        self._doubted.add((endpoint, ensemble))
        self._alarm.set()

    def trial(self, endpoint: Endpoint, ensemble: str) -> Trial | None:
        """None where the ensemble fits no route there."""
        return self._findings.trial(endpoint, ensemble, self.routes)

    async def watch(self) -> None:
        """Runs until it is cancelled."""
        try:
            while True:
                await self.look()
                try:
                    async with asyncio.timeout(_INTERVAL):  # not wait_for, which loses a cancellation that comes with an alarm
                        await self._alarm.wait()
                    await asyncio.sleep(0.1)  # whatever broke one call breaks its neighbours too: one look for all of them
                except TimeoutError:
                    pass
                self._alarm.clear()
        finally:
            for look in self._looks.values():
                look.cancel()

    async def look(self) -> None:
        await self._reload()
        self._round += 1
        endpoints = self.roster.endpoints
        self._findings.keep(endpoints)
        self._doubted = {doubt for doubt in self._doubted if doubt[0] in endpoints}
        self._silent &= set(endpoints)
        for endpoint in endpoints:
            if endpoint not in self._looks:
                self._looks[endpoint] = asyncio.create_task(self._examine(endpoint))
        if self._looks:
            await asyncio.wait(self._looks.values(), timeout=_INTERVAL)
        for endpoint in [endpoint for endpoint, look in self._looks.items() if look.done()]:
            self._looks.pop(endpoint).result()
        self._draw()

    async def _reload(self) -> None:
        stamp = _stamp(self._path)
        if stamp == self._stamp:
            return
        # Half a file can be valid, and means fewer routes: let the writer finish.
        await asyncio.sleep(0.1)
        if _stamp(self._path) != stamp:
            return
        self._stamp = stamp
        try:
            self.routes = await asyncio.to_thread(read_chart, self._path)
        except RoutesInvalid as invalid:
            self.reload_failures += 1
            self.refused = " | ".join(invalid.faults)
            log.error("routes not reloaded, the former ones stay: %s", self.refused)
            return
        self.generation += 1
        self.refused = ""
        self._findings = Findings()  # what is being examined now is written into the former ones, and forgotten
        log.info("routes reloaded: %d in generation %d", len(self.routes), self.generation)

    async def _examine(self, endpoint: Endpoint) -> None:
        began = monotonic()
        try:
            await endpoint.live()
            if not endpoint.health.reachable:
                await self._greet(endpoint)
            names = {target.ensemble for route in self.routes.values() for target in route.targets}
            anew = self._round % _RECHECK == 0
            await asyncio.gather(*(self._examine_ensemble(endpoint, name, anew=anew) for name in names))
            self._silent.discard(endpoint)
        except CallFailed as failed:
            # The control plane has one thread, and may be slow where inference is well.
            if failed.failure is not LATE:
                endpoint.health.lose(failed.failure.name)
            elif endpoint.heard < began:
                self._suspect_silence(endpoint)

    def _suspect_silence(self, endpoint: Endpoint) -> None:
        """The last one is given a second chance: nobody could take over, and the whole machine may be out of breath."""
        is_last = not any(other.health.reachable for other in self.roster.endpoints if other is not endpoint)
        if is_last and endpoint not in self._silent:
            self._silent.add(endpoint)
        else:
            endpoint.health.lose("silent")

    async def _greet(self, endpoint: Endpoint) -> None:
        endpoint.version = (await endpoint.metadata()).version
        if is_outdated(endpoint.version) and endpoint.version not in self._outdated:
            self._outdated.add(endpoint.version)
            log.warning("Triton %s is older than 26.06: not for production (docs/triton.md says why)", endpoint.version)
        self._findings.forget(endpoint)
        endpoint.health.greet()

    async def _examine_ensemble(self, endpoint: Endpoint, name: str, *, anew: bool) -> None:
        findings = self._findings
        routes = [route for route in self.routes.values() if name in {target.ensemble for target in route.targets}]
        doubted = (endpoint, name) in self._doubted
        self._doubted.discard((endpoint, name))
        known = findings.known(endpoint, name, routes)
        faults: Finding
        try:
            if not await endpoint.model_ready(name):
                faults = (f"{name} is not ready on {endpoint.address}",)
            elif known and not anew and not doubted:
                return
            else:
                model = await endpoint.model(name)
                steps = await endpoint.members(model)
                findings.note(endpoint, name, {route.name: _bound(route, model, steps) for route in routes})
                return
        except CallFailed as failed:
            if failed.failure.suspect == "endpoint":
                raise
            if known and failed.failure is LATE:
                return
            faults = (f"{name} can't be served on {endpoint.address}: {failed.failure.name}",)
        findings.note(endpoint, name, {route.name: faults for route in routes})

    def _draw(self) -> None:
        endpoints = self.roster.endpoints
        reachable = [endpoint for endpoint in endpoints if endpoint.health.reachable]
        odd = {pair for route in self.routes.values() for pair in self._findings.odd(route, reachable)}
        for endpoint in reachable:
            endpoint.health.check(self._findings.fitting(endpoint, odd))
        servings = {name: self._findings.serving(route, endpoints, odd) for name, route in self.routes.items()}
        for name, serving in servings.items():
            former = self.table.servings.get(name)
            if former is None or bool(former.ensembles) != bool(serving.ensembles) or former.faults != serving.faults:
                _tell(serving)
        self.table = RouteTable(servings)
        self.ready = self.ready or suffices(servings.values())


def _bound(route: Route, model: Model, steps: Mapping[str, Model]) -> Finding:
    try:
        return bind(route, model, steps)
    except Mismatch as mismatch:
        return mismatch.faults


def _tell(serving: Serving) -> None:
    if serving.ensembles:
        log.info("route %s is served%s", serving.route.name, "".join(f"; {fault}" for fault in serving.faults))
    else:
        log.warning("route %s can't be served: %s", serving.route.name, "; ".join(serving.faults))


def _stamp(path: Path) -> tuple[int, int, int]:
    try:
        stat = path.stat()
    except OSError:
        return 0, 0, 0
    return stat.st_mtime_ns, stat.st_size, stat.st_ino
