"""Every instrument, in one list. `docs/metrics.md` documents each; a test fails when one is missing there."""

import asyncio
import platform
from collections.abc import Callable, Collection, Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics
from prometheus_client.exposition import generate_latest

from app import __version__
from app.telemetry.exchange import Exchange

_DECISION_SECONDS = (0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25)
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class Metrics:
    """Children are bound once and kept, since `labels()` costs more than counting. All label values are bounded: routes are
    path templates, models those of `routes.yaml`, outcomes our own words.
    """

    def __init__(self) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]  # a third of all series, that nobody reads
        self.registry = registry = CollectorRegistry()
        self.requests = Counter(
            "conch_requests",
            "Requests answered, by path template, status and code.",
            ["route", "status", "code"],
            registry=registry,
        )
        self.seconds = Histogram(
            "conch_request_seconds",
            "Time from the request's head to its answer.",
            ["route"],
            buckets=_SECONDS,
            registry=registry,
        )
        self.in_flight = Gauge("conch_requests_in_flight", "Requests that are being served.", registry=registry)
        self.phase = Histogram(
            "conch_phase_seconds",
            "Time of one phase: auth, admission or triton.",
            ["phase"],
            buckets=_SECONDS,
            registry=registry,
        )
        self.auth_failures = Counter(
            "conch_auth_failures", "Requests that could not be authenticated, by reason.", ["reason"], registry=registry
        )
        self.jwks_failures = Gauge(
            "conch_jwks_failures", "Counts the fetches of an issuer's keys that failed.", ["issuer"], registry=registry
        )
        self.inputs = Counter("conch_inputs", "Texts answered, by model.", ["model"], registry=registry)
        self.characters = Counter(
            "conch_characters", "Characters of the texts answered, by model.", ["model"], registry=registry
        )
        self.tokens = Counter("conch_tokens", "Tokens of the texts answered, by model.", ["model"], registry=registry)
        self.limiter = Counter(
            "conch_limiter_decisions",
            "Decisions of the limiter: admitted, or the refusal's code.",
            ["decision", "mode"],
            registry=registry,
        )
        self.shadowed = Counter(
            "conch_limiter_shadowed", "What limits in shadow mode would have refused.", ["limit"], registry=registry
        )
        self.limiter_degraded = Gauge("conch_limiter_degraded", "1 while limits are decided without Redis.", registry=registry)
        self.replicas = Gauge("conch_limiter_replicas", "Gateways that share the limits.", registry=registry)
        self.redis = Histogram(
            "conch_redis_seconds",
            "Time of one decision in Redis, by outcome.",
            ["outcome"],
            buckets=_DECISION_SECONDS,
            registry=registry,
        )
        self.triton = Counter("conch_triton_calls", "Calls to Triton.", ["endpoint", "ensemble", "outcome"], registry=registry)
        self.retries = Counter(
            "conch_triton_retries",
            "Second tries on another endpoint, by how they ended.",
            ["ensemble", "outcome"],
            registry=registry,
        )
        self.ejections = Counter(
            "conch_triton_ejections",
            "Endpoints taken out for an ensemble, by reason.",
            ["endpoint", "ensemble", "reason"],
            registry=registry,
        )
        self.serving = Gauge(
            "conch_triton_serving",
            "1 where an endpoint is asked for an ensemble; 0 while it is ejected.",
            ["endpoint", "ensemble"],
            registry=registry,
        )
        self.endpoints = Gauge("conch_triton_endpoints_reachable", "Endpoints that answer.", registry=registry)
        self.routes_served = Gauge("conch_routes_served", "Routes that can be served.", registry=registry)
        self.generation = Gauge(
            "conch_config_generation", "Counts the reloads of a file that succeeded.", ["file"], registry=registry
        )
        self.reload_failures = Gauge(
            "conch_config_reload_failures", "Counts the reloads that were refused.", ["file"], registry=registry
        )
        self.lag = Gauge("conch_event_loop_lag_seconds", "How late the event loop woke up, last time.", registry=registry)
        self.build = Gauge("conch_build_info", "1; the labels say what runs.", ["version", "python"], registry=registry)
        self.build.labels(__version__, platform.python_version()).set(1)
        self._children: dict[tuple[str, ...], Counter] = {}
        self._seconds: dict[str, Histogram] = {}
        self._redis = {outcome: self.redis.labels(outcome) for outcome in ("ok", "lost", "silent", "refused")}
        self._phases = {phase: self.phase.labels(phase) for phase in ("auth", "admission", "triton")}

    def record(self, exchange: Exchange, status: int) -> None:
        """Count one request that is over."""
        self.count(self.requests, exchange.route, str(status), exchange.code)
        seconds = self._seconds.get(exchange.route)
        if seconds is None:
            seconds = self._seconds[exchange.route] = self.seconds.labels(exchange.route)
        seconds.observe(exchange.elapsed())
        self._phases["auth"].observe(exchange.auth)
        if exchange.limiter:
            self._phases["admission"].observe(exchange.admission)
            mode = "local" if exchange.degraded else "memory" if exchange.remembered else "redis"
            self.count(self.limiter, exchange.limiter, mode)
            for limit in exchange.shadowed:
                self.count(self.shadowed, limit)
        if exchange.triton and exchange.code == "ok":
            self._phases["triton"].observe(exchange.triton)
            self.count(self.inputs, exchange.model, by=exchange.inputs)
            self.count(self.characters, exchange.model, by=exchange.characters)
            self.count(self.tokens, exchange.model, by=exchange.tokens)

    def ask(self, outcome: str, seconds: float) -> None:
        """Redis was asked for a decision."""
        self._redis[outcome].observe(seconds)

    def count(self, counter: Counter, *labels: str, by: int = 1) -> None:
        key = (counter._name, *labels)
        child = self._children.get(key)
        if child is None:
            child = self._children[key] = counter.labels(*labels)
        child.inc(by)

    def show_endpoints(self, endpoints: Mapping[str, tuple[bool, Collection[str], Collection[str]]]) -> None:
        """By address: whether it can be reached, the ensembles that fit, and those that are out. What is gone is forgotten, so
        that addresses that come and go leave no series behind."""
        self.endpoints.set(sum(reachable for reachable, _, _ in endpoints.values()))
        self.serving.clear()
        for address, (_, fit, out) in endpoints.items():
            for ensemble in {*fit, *out}:
                self.serving.labels(address, ensemble).set(ensemble in fit and ensemble not in out)
        for counter in (self.triton, self.ejections):
            for key in [key for key in self._children if key[0] == counter._name and key[1] not in endpoints]:
                counter.remove(*key[1:])
                del self._children[key]

    def exposition(self) -> bytes:
        return generate_latest(self.registry)

    async def watch(self, interval: float, read: Callable[[], None]) -> None:
        """Measure the event loop's lag and `read` the gauges, until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + interval
            await asyncio.sleep(interval)
            self.lag.set(max(0.0, loop.time() - due))
            read()
