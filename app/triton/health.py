"""What one endpoint may be asked for."""

import logging
from collections.abc import Callable, Iterable, Sequence
from time import monotonic

from app.triton.record import Record

log = logging.getLogger("conch.triton")

Tell = Callable[[str, str, str], None]
"""Called with address, ensemble and reason when an endpoint is taken out for an ensemble."""

QUICK = 0.1
"""Seconds until the first probe, where nothing was computed in vain."""
_LOOK, _LONGEST_WAIT = 1.0, 30.0


class Health:
    """`serving` names the ensembles that calls may go to: those whose contract is `checked`, but for the ejected."""

    def __init__(self, address: str, tell: Tell | None = None) -> None:
        self.address = address
        self.reachable = False
        self.reason = ""
        """Why it can't be reached."""
        self.since = monotonic()
        """When it was last met, or lost."""
        self.checked: frozenset[str] = frozenset()
        self.serving: frozenset[str] = frozenset()
        self.records: dict[str, Record] = {}
        self._tell = tell

    @property
    def out(self) -> dict[str, str]:
        """The ejected ensembles, and why."""
        return {name: record.reason for name, record in self.records.items() if record.reason}

    def record(self, ensemble: str) -> Record:
        record = self.records.get(ensemble)
        if record is None:
            record = self.records[ensemble] = Record()
        return record

    def check(self, ensembles: frozenset[str]) -> None:
        """These are ready and fit their routes, and no others."""
        self.checked = ensembles
        self._settle()

    def greet(self) -> None:
        """It answers, for the first time or again. Whatever was ejected is probed at once."""
        now = monotonic()
        self.reachable, self.reason, self.since = True, "", now
        for record in self.records.values():
            record.renew(now)

    def lose(self, reason: str) -> None:
        """It can't be reached. When it can, it must be greeted, checked and probed."""
        if self.reachable or not self.reason:
            log.warning("endpoint %s is lost: %s", self.address, reason)
            self.since = monotonic()
        for ensemble in self.serving:
            self._eject(ensemble, reason, QUICK)
        self.reachable, self.reason = False, reason
        self.check(frozenset())

    def eject(self, ensemble: str, reason: str, first_pause: float) -> None:
        """Take an ensemble out until a probe succeeds, or a while longer where one has failed."""
        if not self.record(ensemble).reason:
            log.warning("endpoint %s is taken out for %s: %s", self.address, ensemble, reason)
        self._eject(ensemble, reason, first_pause)
        self._settle()

    def reinstate(self, ensemble: str) -> None:
        record = self.record(ensemble)
        log.info("endpoint %s is back for %s, after %s", self.address, ensemble, record.reason)
        record.reinstate(monotonic())
        self._settle()

    def due(self, now: float) -> list[str]:
        """The ejected ensembles that should be probed now."""
        return [name for name in self.checked if (record := self.record(name)).reason and record.probe_at <= now]

    def wait(self, ensemble: str, now: float) -> float | None:
        """Seconds after which an ensemble that is not served here may be: at the next probe. How long an outage lasts nobody
        knows; the best guess is as long again as it has lasted. None where it is not an illness that keeps it away.
        """
        if not self.reachable:
            return min(_LONGEST_WAIT, now - self.since)
        record = self.record(ensemble)
        return record.probe_at - now if record.reason and ensemble in self.checked else None

    def _eject(self, ensemble: str, reason: str, first_pause: float) -> None:
        record = self.record(ensemble)
        if self._tell is not None and not record.reason:
            self._tell(self.address, ensemble, reason)
        record.eject(reason, first_pause, monotonic())

    def _settle(self) -> None:
        self.serving = frozenset(name for name in self.checked if not self.record(name).reason)


def soonest(healths: Iterable[Health], ensembles: Sequence[str], now: float) -> float:
    """Seconds after which one of them may serve one of the ensembles; where that can't be told, those until the next look."""
    waits = [health.wait(ensemble, now) for health in healths for ensemble in ensembles]
    return max(_LOOK, min((wait for wait in waits if wait is not None), default=_LOOK))
