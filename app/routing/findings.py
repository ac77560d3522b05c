"""What the endpoints were found to serve, and what that makes of the routes. It asks nobody."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from time import monotonic

from app.routing.route import Route, Serving
from app.triton.client import Endpoint
from app.triton.ensemble import Ensemble
from app.triton.health import soonest

Finding = Ensemble | tuple[str, ...]
"""What can be served, or why it can't be."""
Odd = set[tuple[Endpoint, str]]
"""Endpoints on which an ensemble differs from that of the others."""


@dataclass(frozen=True, slots=True)
class Trial:
    """How to find out whether an ensemble really answers."""

    route: Route
    ensemble: Ensemble


class Findings:
    """For each endpoint, what was found there by route and ensemble."""

    def __init__(self) -> None:
        self._found: dict[Endpoint, dict[tuple[str, str], Finding]] = {}

    def keep(self, endpoints: Iterable[Endpoint]) -> None:
        """These, and no others, are there."""
        self._found = {endpoint: self._found.get(endpoint, {}) for endpoint in endpoints}

    def forget(self, endpoint: Endpoint) -> None:
        self._found[endpoint] = {}

    def note(self, endpoint: Endpoint, ensemble: str, findings: Mapping[str, Finding]) -> None:
        """By route."""
        if endpoint in self._found:
            self._found[endpoint].update({(route, ensemble): finding for route, finding in findings.items()})

    def known(self, endpoint: Endpoint, ensemble: str, routes: Iterable[Route]) -> bool:
        """Whether it was found fit for all of them."""
        return all(isinstance(self.at(endpoint, route.name, ensemble), Ensemble) for route in routes)

    def at(self, endpoint: Endpoint, route: str, ensemble: str) -> Finding | None:
        return self._found.get(endpoint, {}).get((route, ensemble))

    def trial(self, endpoint: Endpoint, ensemble: str, routes: Mapping[str, Route]) -> Trial | None:
        """None where the ensemble fits no route there."""
        for (route, name), finding in self._found.get(endpoint, {}).items():
            if name == ensemble and isinstance(finding, Ensemble) and route in routes:
                return Trial(routes[route], finding)
        return None

    def fitting(self, endpoint: Endpoint, odd: Odd) -> frozenset[str]:
        """The ensembles that may be asked for there."""
        found = self._found.get(endpoint, {}).items()
        return frozenset(name for (_, name), finding in found if isinstance(finding, Ensemble) and (endpoint, name) not in odd)

    def odd(self, route: Route, endpoints: Iterable[Endpoint]) -> Iterator[tuple[Endpoint, str]]:
        """Where an ensemble differs from that of the first endpoint that serves it."""
        for target in route.targets:
            found = [(endpoint, self.at(endpoint, route.name, target.ensemble)) for endpoint in endpoints]
            bound = [(endpoint, finding) for endpoint, finding in found if isinstance(finding, Ensemble)]
            bound.sort(key=lambda pair: target.ensemble in pair[0].health.out)
            for endpoint, finding in bound[1:]:
                if finding != bound[0][1]:
                    yield endpoint, target.ensemble

    def serving(self, route: Route, endpoints: Sequence[Endpoint], odd: Odd) -> Serving:
        """The route as it can be served now."""
        now = monotonic()
        ensembles: list[tuple[Ensemble, int]] = []
        faults: list[str] = []
        for target in route.targets:
            agreed: Ensemble | None = None
            for endpoint in endpoints:
                finding = self.at(endpoint, route.name, target.ensemble)
                if fault := _fault(endpoint, target.ensemble, finding, odd):
                    faults.extend(fault)
                elif isinstance(finding, Ensemble):
                    agreed = agreed or finding
            if agreed is not None and target.weight:
                ensembles.append((agreed, target.weight))
        healths = [endpoint.health for endpoint in endpoints]
        again = now + soonest(healths, [target.ensemble for target in route.targets], now)
        reachable = any(health.reachable for health in healths)
        return Serving(route, tuple(ensembles), tuple(dict.fromkeys(faults)), reachable, again)


def _fault(endpoint: Endpoint, ensemble: str, finding: Finding | None, odd: Odd) -> tuple[str, ...]:
    """Why the ensemble is not asked for there; nothing where it is."""
    if not endpoint.health.reachable:
        return (f"{endpoint.address} can't be reached",)
    if isinstance(finding, tuple):
        return finding
    if (endpoint, ensemble) in odd:
        return (f"{ensemble} on {endpoint.address} differs from the other endpoints'",)
    if reason := endpoint.health.out.get(ensemble):
        return (f"{ensemble} is taken out on {endpoint.address}: {reason}",)
    return ()
