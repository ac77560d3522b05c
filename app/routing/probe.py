"""Asks the ejected whether they are well again."""

import asyncio
from functools import partial

from app.deadline import Deadline
from app.routing.findings import Trial
from app.routing.survey import Survey
from app.triton.client import Endpoint
from app.triton.pool import Batch, Pool
from app.triton.query import probing

_INTERVAL = 0.1
_PRIORITY = 0
"""Triton's word for a model's own default."""


class Prober:
    """Only a real inference tells: a Triton says that it is ready while a step is dead or an ensemble hangs."""

    def __init__(self, survey: Survey, pool: Pool) -> None:
        self._survey = survey
        self._pool = pool
        self._running: dict[tuple[Endpoint, str], asyncio.Task[None]] = {}

    async def watch(self) -> None:
        """Runs until it is cancelled."""
        try:
            while True:
                await asyncio.sleep(_INTERVAL)
                self.begin()
        finally:
            for task in self._running.values():
                task.cancel()

    def begin(self) -> None:
        """Start the probes that are due, each once."""
        for endpoint, ensemble in self._pool.due():
            trial = self._survey.trial(endpoint, ensemble)
            if trial is not None and (endpoint, ensemble) not in self._running:
                task = asyncio.create_task(self._probe(endpoint, trial))
                self._running[endpoint, ensemble] = task
                task.add_done_callback(partial(self._forget, endpoint, ensemble))

    def _forget(self, endpoint: Endpoint, ensemble: str, task: "asyncio.Task[None]") -> None:
        del self._running[endpoint, ensemble]

    async def _probe(self, endpoint: Endpoint, trial: Trial) -> None:
        query, seconds = probing(trial.ensemble, trial.route.probe), trial.route.timeout
        request = query.request("probe", int(seconds * 1_000_000), _PRIORITY)
        await self._pool.probe(endpoint, Batch(query, request), Deadline.after(seconds))
        self._survey.alarm()
