"""Several Tritons as one."""

import logging
import random
from collections.abc import Callable
from dataclasses import dataclass

from tritonclient.grpc import service_pb2 as pb

from app.deadline import Deadline
from app.errors import ModelUnavailable, Refusal, Unavailable
from app.triton.client import CallFailed, Endpoint, Metadata

log = logging.getLogger("conch.triton")


@dataclass(frozen=True, slots=True)
class Observed:
    """One call to one endpoint, as it ended."""

    endpoint: str
    ensemble: str
    outcome: str


class Pool:
    """Chooses an endpoint for each call, and tries one other where the first never executed it or was cut off.

    Inference is pure, so that a second try is safe; it is never made after a deadline or a full queue, since it would add load
    exactly where there is too much. `observe` is told of every call, `alarm` of every endpoint that has proven ill.
    """

    def __init__(self, endpoints: tuple[Endpoint, ...], observe: Callable[[Observed], None], alarm: Callable[[], None]) -> None:
        self.endpoints = endpoints
        self._observe = observe
        self._alarm = alarm

    async def infer(self, ensemble: str, request: bytes, deadline: Deadline, metadata: Metadata = ()) -> pb.ModelInferResponse:
        endpoint = self._choose(ensemble)
        if endpoint is None:
            raise self._nobody(ensemble)
        try:
            return await self._call(endpoint, ensemble, request, deadline, metadata)
        except CallFailed as failed:
            other = self._choose(ensemble, besides=endpoint) if failed.failure.elsewhere else None
            if other is None:
                raise failed.failure.refuse() from failed
        try:
            return await self._call(other, ensemble, request, deadline, metadata)
        except CallFailed as failed:
            raise failed.failure.refuse() from failed

    async def _call(
        self, endpoint: Endpoint, ensemble: str, request: bytes, deadline: Deadline, metadata: Metadata
    ) -> pb.ModelInferResponse:
        outcome = "cancelled"
        try:
            response = await endpoint.infer(request, deadline, metadata)
            outcome = "ok"
            return response
        except CallFailed as failed:
            outcome = failed.failure.name
            self._suspect(endpoint, ensemble, failed)
            raise
        except Refusal as refusal:
            outcome = refusal.code
            raise
        finally:
            self._observe(Observed(endpoint.address, ensemble, outcome))

    def _choose(self, ensemble: str, besides: Endpoint | None = None) -> Endpoint | None:
        """The less busy of two random endpoints that serve the ensemble."""
        serving = [endpoint for endpoint in self.endpoints if ensemble in endpoint.serving and endpoint is not besides]
        if len(serving) > 2:
            serving = random.sample(serving, 2)
        return min(serving, key=lambda endpoint: endpoint.in_flight, default=None)

    def _suspect(self, endpoint: Endpoint, ensemble: str, failed: CallFailed) -> None:
        failure = failed.failure
        if failure.suspect == "none":
            return
        if failure.suspect == "endpoint":
            endpoint.serving = frozenset()
            endpoint.reachable = False
        else:
            endpoint.serving -= {ensemble}
        log.warning("endpoint %s taken out for %s: %s", endpoint.address, ensemble, failure.name)
        self._alarm()

    def _nobody(self, ensemble: str) -> Refusal:
        if any(endpoint.reachable for endpoint in self.endpoints):
            return ModelUnavailable("no model server serves this model at present", retry_after=1)
        return Unavailable("no model server can be reached", retry_after=1)
