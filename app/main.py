"""The only wiring: what a process is made of, and in which order it starts and stops."""

import asyncio
import contextlib
import gc
import logging
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from fastapi import FastAPI, Request, Response
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Scope

from app.admission.bulkhead import Bulkhead
from app.admission.redis_limiter import RedisLimiter
from app.api import catalog, tasks
from app.api.body import BodyLimits
from app.api.docs import docs_routes
from app.api.health import health_routes
from app.api.openapi import complete
from app.edge.observe import Observe
from app.edge.perimeter import Perimeter
from app.edge.problem import headers, problem, translated
from app.edge.shortcut import Shortcut
from app.errors import Refusal
from app.gateway import Gateway
from app.routing.chart import read_chart
from app.routing.route import Route
from app.routing.survey import Survey
from app.settings import Settings
from app.telemetry.logs import AccessLog
from app.telemetry.metrics import Metrics
from app.telemetry.tracing import Tracing, exporter
from app.tenancy.directory import Directory
from app.triton.client import ChannelOptions, Endpoint
from app.triton.ensemble import Ensemble
from app.triton.pool import Observed, Pool

log = logging.getLogger("conch")


@dataclass
class House:
    """One process: what outlives its requests. Building it reads files and does no other I/O."""

    settings: Settings
    directory: Directory
    routes: Mapping[str, Route]
    metrics: Metrics
    tracing: Tracing
    survey: Survey | None = None
    limiter: RedisLimiter | None = None
    bulkheads: dict[str, Bulkhead] = field(default_factory=dict)
    draining: bool = False
    """Told to end: still serving, but load balancers should look elsewhere."""

    @classmethod
    def build(cls, settings: Settings) -> "House":
        """Raises `TenantsInvalid` and `RoutesInvalid`."""
        directory, routes = Directory(settings.tenants_file), read_chart(settings.routes_file)
        return cls(settings, directory, routes, Metrics(), Tracing(exporter(os.environ)))

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Gateway]:
        """Channels and connections belong to the event loop, so that they are made here."""
        settings = self.settings
        async with AsyncExitStack() as stack:
            stack.callback(self.tracing.close)
            options = ChannelOptions(settings.max_message_bytes)
            endpoints = tuple(Endpoint(address, options) for address in settings.triton)
            for endpoint in endpoints:
                stack.push_async_callback(endpoint.close)
            self.survey = survey = Survey(settings.routes_file, self.routes, endpoints)
            budget = settings.redis_budget_ms / 1000
            limiter = RedisLimiter(settings.redis_url, replicas=settings.replicas, budget=budget)
            self.limiter = await stack.enter_async_context(limiter)
            pool = Pool(endpoints, self._count_call, survey.alarm)
            await survey.look()
            for watch in (survey.watch(), self.directory.watch(), self.metrics.watch(1.0, self._read_gauges)):
                stack.push_async_callback(_cancelled, asyncio.create_task(watch))
            yield Gateway(lambda: survey.table, limiter, self._bulkhead, pool, self.tracing, settings.split_parallelism)

    def ready(self) -> bool:
        return self.survey is not None and self.survey.ready and not self.draining

    def status(self) -> dict[str, Any]:
        """For `/status` on the admin port."""
        survey = self.survey
        if survey is None:
            return {"ready": False}
        return {
            "ready": survey.ready,
            "limiter": self.limiter.mode if self.limiter else "degraded",
            "tenants": {"generation": self.directory.generation, "failures": self.directory.failures},
            "routes_file": {"generation": survey.generation, "failures": survey.reload_failures},
            "endpoints": [
                {"address": e.address, "reachable": e.reachable, "version": e.version, "serving": sorted(e.serving)}
                for e in survey.endpoints
            ],
            "routes": {
                name: {"served": bool(serving.ensembles), "required": serving.route.required, "faults": list(serving.faults)}
                for name, serving in survey.table.servings.items()
            },
        }

    def _bulkhead(self, ensemble: Ensemble, route: Route) -> Bulkhead:
        bulkhead = self.bulkheads.get(ensemble.name)
        if bulkhead is None or bulkhead.berths != route.concurrency:
            patience = self.settings.berth_wait_ms / 1000
            bulkhead = self.bulkheads[ensemble.name] = Bulkhead(ensemble.name, route.concurrency, patience=patience)
        return bulkhead

    def _count_call(self, call: Observed) -> None:
        self.metrics.count(self.metrics.triton, call.endpoint, call.ensemble, call.outcome)

    def _read_gauges(self) -> None:
        metrics, survey = self.metrics, self.survey
        if survey is None or self.limiter is None:
            return
        metrics.limiter_degraded.set(self.limiter.mode == "degraded")
        metrics.endpoints.set(sum(endpoint.reachable for endpoint in survey.endpoints))
        metrics.routes_served.set(sum(bool(serving.ensembles) for serving in survey.table.servings.values()))
        metrics.generation.labels("tenants").set(self.directory.generation)
        metrics.generation.labels("routes").set(survey.generation)
        metrics.reload_failures.labels("tenants").set(self.directory.failures)
        metrics.reload_failures.labels("routes").set(survey.reload_failures)


def create_app(house: House) -> ASGIApp:
    """The public application: the edge around FastAPI."""
    body_limits = BodyLimits(house.settings.max_body_bytes, house.settings.body_timeout_seconds)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[dict[str, Any]]:
        async with house.open() as gateway:
            _settle_collector()
            yield {"gateway": gateway, "body_limits": body_limits}

    api = api_app(lifespan)
    api.router.routes.extend(health_routes(house.ready))
    access = AccessLog() if house.settings.access_log else None
    fixed = tasks.POSTS.keys() | {getattr(route, "path", "") for route in api.router.routes}

    def route_of(scope: Scope) -> str:
        """The template of the path, so that a metric has no label for each path that a stranger thinks of."""
        return scope["path"] if scope["path"] in fixed else getattr(scope.get("route"), "path", "unmatched")

    shortcut = Shortcut(api, tasks.POSTS)
    perimeter = Perimeter(shortcut, house.directory, house.settings.max_body_bytes)
    return Observe(perimeter, house.metrics, house.tracing, access, route_of, lambda: house.draining)


def api_app(lifespan: Any = None) -> FastAPI:
    """FastAPI with every operation, and its document; the bare application, without the edge."""
    api = FastAPI(
        title="Conch",
        version="1",
        description="The REST front door of NVIDIA Triton Inference Server for text models.",
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        lifespan=lifespan,
        exception_handlers={Refusal: _refused, HTTPException: _untranslated},
    )
    api.include_router(tasks.router)
    api.include_router(catalog.router)
    document = complete(api.openapi(), tasks.REQUESTS)
    api.router.routes.extend(docs_routes(document))
    return api


async def _refused(request: Request, refusal: Exception) -> Response:
    assert isinstance(refusal, Refusal)  # noqa: S101
    exchange = request.state.exchange
    exchange.code = refusal.code
    body = problem(refusal, exchange.request_id, request.scope["path"])
    response = Response(body, refusal.status)
    response.raw_headers[:] = [*headers(refusal), (b"content-length", str(len(body)).encode())]
    return response


async def _untranslated(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101
    return await _refused(request, translated(error.status_code, (error.headers or {}).get("Allow")))


async def _cancelled(task: "asyncio.Task[None]") -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


def _settle_collector() -> None:
    """What exists now stays, so that the collector need not walk it; and it looks seldom, since requests leave no cycles."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)
