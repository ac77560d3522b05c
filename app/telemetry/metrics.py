"""Every instrument, in one list. `docs/metrics.md` documents each; a test fails when one is missing there."""

import asyncio
import contextlib
import gc
import platform
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from time import perf_counter

from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric
from prometheus_client.process_collector import ProcessCollector

from app import __version__
from app.telemetry.certificates import expiry
from app.telemetry.exchange import Exchange
from app.telemetry.instruments import Registry
from app.telemetry.ranking import Ranking

_DECISION_SECONDS = (0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25)
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_TENANT_SECONDS = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
_PAUSES = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25)
_PHASES = ("auth", "parse", "admission", "queue", "triton", "encode")
_PARTS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0)
_LAG_SECONDS, _LAGS = 0.25, 60
_RANKING_SECONDS = 60.0


class Metrics:
    """All label values are bounded: routes are path templates, models those of `routes.yaml`, tenants the busiest, outcomes our
    own words. It belongs to one event loop, which reads it too.
    """

    def __init__(self, tenants: int = 20) -> None:
        """So many tenants have series of their own."""
        self.registry = registry = Registry()
        counter, gauge, histogram = registry.counter, registry.gauge, registry.histogram

        self.requests = counter("conch_requests", "Requests answered.", "route", "status", "code")
        self.seconds = histogram("conch_request_seconds", "From the head to the answer.", "route", bounds=_SECONDS)
        self.in_flight = gauge("conch_requests_in_flight", "Requests that are being served.")
        self.phase = histogram("conch_phase_seconds", "Time of one phase of a request.", "phase", bounds=_SECONDS)
        self.parts = histogram("conch_request_parts", "Calls to Triton that a request was split into.", bounds=_PARTS)
        self.tenant_requests = counter("conch_tenant_requests", "Requests of the busiest tenants.", "tenant", "code")
        self.tenant_seconds = histogram(
            "conch_tenant_request_seconds", "Time of their requests.", "tenant", bounds=_TENANT_SECONDS
        )
        self.tenant_characters = counter("conch_tenant_characters", "Characters answered to them.", "tenant")
        self.auth_failures = counter("conch_auth_failures", "Requests without a valid credential.", "reason")
        self.jwks_failures = gauge("conch_jwks_failures", "Fetches of an issuer's keys that failed.", "issuer")
        self.inputs = counter("conch_inputs", "Texts answered.", "model")
        self.characters = counter("conch_characters", "Characters of the texts answered.", "model")
        self.tokens = counter("conch_tokens", "Tokens of the texts answered.", "model")
        self.bulk_lines = counter("conch_bulk_lines", "Lines of bulk posts.", "model", "outcome")

        self.limiter = counter("conch_limiter_decisions", "Decisions of the limiter.", "decision", "mode")
        self.shadowed = counter("conch_limiter_shadowed", "What limits in shadow mode would have refused.", "limit")
        self.limiter_degraded = gauge("conch_limiter_degraded", "1 while limits are decided without Redis.")
        self.replicas = gauge("conch_limiter_replicas", "Gateways that share the limits.")
        self.redis = histogram("conch_redis_seconds", "Time of a decision in Redis.", "outcome", bounds=_DECISION_SECONDS)

        self.berths = gauge("conch_berths", "Requests that an ensemble may work on at once, for this gateway.", "ensemble")
        self.taken = gauge("conch_berths_taken", "Requests that it works on.", "ensemble")
        self.waiting = gauge("conch_berths_waiting", "Requests that wait for a berth.", "ensemble")
        self.queue = histogram("conch_berth_wait_seconds", "Time of that wait.", "ensemble", bounds=_SECONDS)

        self.triton = counter("conch_triton_calls", "Calls to Triton.", "endpoint", "ensemble", "outcome")
        self.triton_seconds = histogram("conch_triton_call_seconds", "Time of one call.", "ensemble", bounds=_SECONDS)
        self.retries = counter("conch_triton_retries", "Second tries on another endpoint.", "ensemble", "outcome")
        self.ejections = counter("conch_triton_ejections", "Ensembles taken out.", "endpoint", "ensemble", "reason")
        self.serving = gauge("conch_triton_serving", "1 where an endpoint is asked for an ensemble.", "endpoint", "ensemble")
        self.endpoints = gauge("conch_triton_endpoints_reachable", "Endpoints that answer.")
        self.endpoints_known = gauge("conch_triton_endpoints", "Endpoints that are known.")

        self.ready = gauge("conch_ready", "1 while /readyz says so.")
        self.routes_served = gauge("conch_routes_served", "Routes that can be served.")
        self.model_served = gauge("conch_model_served", "1 while a model can be served.", "model", "required")
        self.generation = gauge("conch_config_generation", "Loads of a file that succeeded.", "file")
        self.reload_failures = gauge("conch_config_reload_failures", "Loads of a file that were refused.", "file")
        self.refused = gauge("conch_config_refused", "1 while a file, as it is now, is refused.", "file")
        self.certificates = gauge("conch_certificate_expires_seconds", "Unix time at which a certificate expires.", "file")
        self.lag = gauge("conch_event_loop_lag_seconds", "How late the event loop woke up: the worst of 15 seconds.")
        self.gc = histogram("conch_gc_pause_seconds", "Pauses of the garbage collector.", "generation", bounds=_PAUSES)
        self.build = gauge("conch_build_info", "1; the labels say what runs.", "version", "python")

        self.build.labels(__version__, platform.python_version()).set(1)
        self.running = 0
        self._ranking = Ranking(tenants)
        self._process = ProcessCollector(registry=None)
        self._redis = {outcome: self.redis.labels(outcome) for outcome in ("ok", "lost", "silent", "refused")}
        for generation in ("0", "1", "2"):
            self.gc.labels(generation)
        self._phases = {phase: self.phase.labels(phase) for phase in _PHASES}

    def record(self, exchange: Exchange, status: int) -> None:
        """Count one request that is over."""
        elapsed, trace = exchange.elapsed(), exchange.sampled_trace
        self.requests.labels(exchange.route, str(status), exchange.code).inc()
        self.seconds.labels(exchange.route).observe(elapsed, trace)
        for phase, seconds in (("auth", exchange.auth), ("parse", exchange.parse), ("encode", exchange.encode)):
            if seconds:
                self._phases[phase].observe(seconds, trace)
        if exchange.tenant:
            self._record_tenant(exchange, elapsed)
        if exchange.limiter:
            self._record_limits(exchange)
        if exchange.queue:
            self._phases["queue"].observe(exchange.queue, trace)
            self.queue.labels(exchange.ensemble).observe(exchange.queue)
        if exchange.triton and exchange.code == "ok":
            self._phases["triton"].observe(exchange.triton, trace)
            self.parts.labels().observe(exchange.chunks)
            self.inputs.labels(exchange.model).inc(exchange.inputs)
            self.characters.labels(exchange.model).inc(exchange.characters)
            self.tokens.labels(exchange.model).inc(exchange.tokens)
        for outcome, lines in exchange.outcomes.items():
            self.bulk_lines.labels(exchange.model, outcome).inc(lines)

    def _record_tenant(self, exchange: Exchange, elapsed: float) -> None:
        tenant = self._ranking.name(exchange.tenant)
        self.tenant_requests.labels(tenant, exchange.code).inc()
        self.tenant_seconds.labels(tenant).observe(elapsed)
        if exchange.triton:
            self.tenant_characters.labels(tenant).inc(exchange.characters)

    def _record_limits(self, exchange: Exchange) -> None:
        self._phases["admission"].observe(exchange.admission, exchange.sampled_trace)
        mode = "local" if exchange.degraded else "memory" if exchange.remembered else "redis"
        self.limiter.labels(exchange.limiter, mode).inc()
        for limit in exchange.shadowed:
            self.shadowed.labels(limit).inc()

    def ask(self, outcome: str, seconds: float) -> None:
        """Redis was asked for a decision."""
        self._redis[outcome].observe(seconds)

    def show_endpoints(self, endpoints: Mapping[str, tuple[bool, Collection[str], Collection[str]]]) -> None:
        """By address: whether it can be reached, the ensembles that fit, and those that are out. What is gone is forgotten, so
        that addresses that come and go leave no series behind."""
        self.endpoints.set(sum(reachable for reachable, _, _ in endpoints.values()))
        self.endpoints_known.set(len(endpoints))
        self.serving.clear()
        for address, (_, fit, out) in endpoints.items():
            for ensemble in {*fit, *out}:
                self.serving.labels(address, ensemble).set(ensemble in fit and ensemble not in out)
        for counter in (self.triton, self.ejections):
            counter.forget(lambda values: values[0] not in endpoints)

    def show_models(self, models: Iterable[tuple[str, bool, bool]]) -> None:
        """By name: whether it can be served, and whether it must be."""
        self.model_served.clear()
        for model, served, required in models:
            self.model_served.labels(model, str(required).lower()).set(served)

    def show_certificates(self, files: Mapping[str, bytes | None]) -> None:
        """PEM by the setting that names it. What can't be read is for whoever needs the certificate to say."""
        for setting, pem in files.items():
            with contextlib.suppress(ValueError):
                if pem:
                    moment = expiry(pem)
                    self.certificates.labels(setting).set(moment)

    def exposition(self, accept: str) -> tuple[bytes, str]:
        """In a format that fits the Accept header, and that format's name. Exemplars are in OpenMetrics alone."""
        encode, media_type = choose_encoder(accept)
        self.in_flight.set(self.running)
        return encode(self), media_type

    def collect(self) -> Iterator[Metric]:
        yield from self.registry.collect()
        yield from self._process.collect()

    async def watch(self, interval: float, read: Callable[[], None]) -> None:
        """Measure the event loop's lag and the collector's pauses, and `read` the gauges, until cancelled."""
        loop = asyncio.get_running_loop()
        lags = deque([0.0], maxlen=_LAGS)
        read_at, ranked_at = loop.time() + interval, loop.time() + _RANKING_SECONDS
        with self._pauses_measured():
            while True:
                due = loop.time() + _LAG_SECONDS
                await asyncio.sleep(_LAG_SECONDS)
                lags.append(max(0.0, loop.time() - due))
                self.lag.set(max(lags))
                if due >= read_at:
                    read_at = due + interval
                    read()
                if due >= ranked_at:
                    ranked_at = due + _RANKING_SECONDS
                    self._rank()

    def _rank(self) -> None:
        lost = self._ranking.settle()
        for instrument in (self.tenant_requests, self.tenant_seconds, self.tenant_characters):
            instrument.forget(lambda values: values[0] in lost)

    @contextlib.contextmanager
    def _pauses_measured(self) -> Iterator[None]:
        began = 0.0

        def collected(phase: str, info: Mapping[str, int]) -> None:
            nonlocal began
            if phase == "start":
                began = perf_counter()
            else:
                self.gc.labels(str(info["generation"])).observe(perf_counter() - began)

        gc.callbacks.append(collected)
        try:
            yield
        finally:
            gc.callbacks.remove(collected)
