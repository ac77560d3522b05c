"""One process: what outlives its requests, and in which order it starts and stops."""

import asyncio
import contextlib
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from app.admission.bulkhead import Bulkhead
from app.admission.redis_limiter import RedisLimiter
from app.gateway import Gateway
from app.routing.chart import read_chart
from app.routing.probe import Prober
from app.routing.route import Route
from app.routing.survey import Survey
from app.settings import Settings
from app.telemetry.metrics import Metrics
from app.telemetry.tracing import Tracing, exporter
from app.tenancy.directory import Directory
from app.tenancy.edition import Edition
from app.tenancy.issuer import Issuer, read_issuers
from app.triton.budget import RetryBudget
from app.triton.client import ChannelOptions, Endpoint, Tls
from app.triton.discovery import Roster
from app.triton.ensemble import Ensemble
from app.triton.pool import DENIED, Observed, Pool
from app.triton.renewal import Renewal

if TYPE_CHECKING:
    from app.tenancy.jwks import Jwks
    from app.tenancy.token import Tokens

log = logging.getLogger("conch")

Watch = Callable[[], Awaitable[None]]

_BERTHS = 256
"""Of an ensemble whose capacity its configs don't tell."""
_FEWEST_BERTHS, _DEPTH = 4, 2
"""While one batch is computed the next one waits at Triton, so that no instance waits for a gateway."""


@dataclass
class House:
    """One process: what outlives its requests. Building it reads files and does no other I/O."""

    settings: Settings
    directory: Directory
    routes: Mapping[str, Route]
    metrics: Metrics
    tracing: Tracing
    issuers: Edition[tuple[Issuer, ...]] | None = None
    tokens: "Tokens | None" = None
    survey: Survey | None = None
    limiter: RedisLimiter | None = None
    options: ChannelOptions = field(default_factory=ChannelOptions)
    bulkheads: dict[str, Bulkhead] = field(default_factory=dict)
    watches: dict[str, Watch] = field(default_factory=dict)
    """Of whoever lives as long as the house, beside its own."""
    draining: bool = False
    """Told to end: still serving, but load balancers should look elsewhere."""

    @classmethod
    def build(cls, settings: Settings) -> "House":
        """Raises `TenantsInvalid` and `RoutesInvalid`."""
        directory, routes = Directory(settings.tenants_file), read_chart(settings.routes_file)
        issuers = Edition("issuers", settings.tokens_file, read_issuers) if settings.tokens_file else None
        tokens = _tokens(issuers.content) if issuers else None
        sampler = os.environ.get("OTEL_TRACES_SAMPLER", "")
        tracing = Tracing(exporter(os.environ), sampler=sampler, joins=settings.join_traces)
        return cls(settings, directory, routes, Metrics(settings.metrics_tenants), tracing, issuers, tokens)

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Gateway]:
        """Channels and connections belong to the event loop, so that they are made here."""
        settings = self.settings
        async with AsyncExitStack() as stack:
            stack.callback(self.tracing.close)
            self._read_options()
            roster = Roster(settings.triton, self._connect)
            stack.push_async_callback(roster.close)
            await roster.refresh()
            self.survey = survey = Survey(settings.routes_file, self.routes, roster)
            budget = settings.redis_budget_ms / 1000
            replicas = None if settings.replicas == "auto" else settings.replicas
            limiter = RedisLimiter(settings.redis_url, replicas=replicas, budget=budget, asked=self.metrics.ask)
            self.limiter = await stack.enter_async_context(limiter)
            pool = Pool(roster, self._count_call, survey.doubt, RetryBudget())
            await survey.look()
            watches: dict[str, Watch] = {
                **self.watches,
                "routes": survey.watch,
                "tenants": self.directory.watch,
                "probes": Prober(survey, pool).watch,
                "endpoints": lambda: roster.watch(survey.alarm),
            }
            if self.options.tls:
                watches["certificates"] = Renewal(roster, self._read_options).watch
            if self.issuers and self.tokens:
                stack.push_async_callback(self.tokens.close)
                watches["issuers"] = partial(self.issuers.watch, self.tokens.replace)
                watches["issuers' keys"] = self.tokens.watch
            for name, watch in watches.items():
                stack.push_async_callback(_cancelled, asyncio.create_task(_tended(name, watch)))
            yield Gateway(lambda: survey.table, limiter, self._bulkhead, pool, self.tracing, settings.split_parallelism)

    def ready(self) -> bool:
        return self.survey is not None and self.survey.ready and not self.draining

    def jwks(self) -> "Iterable[tuple[str, Jwks]]":
        """The keys of each issuer, by its name."""
        return self.tokens.keys.items() if self.tokens else ()

    def _bulkhead(self, ensemble: Ensemble, route: Route) -> Bulkhead:
        """One for each ensemble. Its size follows the endpoints and the replicas, where the route does not set it."""
        bulkhead = self.bulkheads.get(ensemble.name)
        if bulkhead is None:
            patience = self.settings.berth_wait_ms / 1000
            bulkhead = self.bulkheads[ensemble.name] = Bulkhead(ensemble.name, _BERTHS, patience=patience)
        bulkhead.berths = route.concurrency or self._berths(ensemble)
        return bulkhead

    def _berths(self, ensemble: Ensemble) -> int:
        """What the narrowest member can work on at once, and as much again, on all endpoints, shared by all replicas."""
        if not ensemble.capacity or self.survey is None or self.limiter is None:
            return _BERTHS
        serving = sum(ensemble.name in endpoint.health.serving for endpoint in self.survey.roster.endpoints)
        return max(_FEWEST_BERTHS, _DEPTH * ensemble.capacity * serving // self.limiter.replicas)

    def _connect(self, address: str, server_name: str) -> Endpoint:
        return Endpoint(address, self.options, server_name, self._count_ejection)

    def _read_options(self) -> ChannelOptions:
        options = channel_options(self.settings)
        if options.tls and options != self.options:
            tls = options.tls
            self.metrics.show_certificates({"triton_tls_ca_file": tls.ca, "triton_tls_cert_file": tls.certificate})
        self.options = options
        return options

    def _count_call(self, call: Observed) -> None:
        metrics = self.metrics
        if call.again:
            metrics.retries.labels(call.ensemble, call.outcome).inc()
        if call.outcome != DENIED:
            metrics.triton.labels(call.endpoint, call.ensemble, call.outcome).inc()
            metrics.triton_seconds.labels(call.ensemble).observe(call.seconds)

    def _count_ejection(self, endpoint: str, ensemble: str, reason: str) -> None:
        self.metrics.ejections.labels(endpoint, ensemble, reason).inc()


def channel_options(settings: Settings) -> ChannelOptions:
    """With the certificates of the day; raises `OSError`."""
    files = (settings.triton_tls_ca_file, settings.triton_tls_cert_file, settings.triton_tls_key_file)
    ca, certificate, key = (file.read_bytes() if file else None for file in files)
    tls = Tls(ca, certificate, key, settings.triton_tls_server_name) if any(files) else None
    name, _, value = settings.triton_protocol_header.get_secret_value().partition("=")
    metadata = ((f"triton-grpc-protocol-{name}", value),) if name else ()
    return ChannelOptions(settings.max_message_bytes, tls, metadata)


def _tokens(issuers: Iterable[Issuer]) -> "Tokens":
    from app.tenancy.token import Tokens  # its libraries cost 13 MB, and few gateways need them

    return Tokens(issuers)


async def _tended(name: str, watch: Watch) -> None:
    """Nobody awaits a watch, so that here is the outermost edge of it: what ends one is logged, and it begins anew."""
    while True:
        try:
            await watch()
        except Exception:  # whatever it is, a watch must not end unseen
            log.exception("the watch over %s failed, and begins anew", name)
        await asyncio.sleep(1)


async def _cancelled(task: "asyncio.Task[None]") -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
