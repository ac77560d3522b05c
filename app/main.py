"""The public application: the edge around FastAPI, and which layer comes first."""

import ctypes
import gc
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.openapi.utils import get_openapi
from starlette.exceptions import HTTPException
from starlette.routing import Route
from starlette.types import ASGIApp, Scope

from app.api import bulk, catalog, inference, tasks
from app.api.body import BodyLimits
from app.api.bulk_schemas import LINES
from app.api.docs import docs_routes
from app.api.document import complete
from app.api.health import health_routes
from app.api.hold import Hold
from app.api.inference_schemas import InferRequest
from app.edge.cross_origin import CrossOrigin
from app.edge.doorkeeper import Doorkeeper
from app.edge.echo import Echo, Record
from app.edge.methods import Methods, allowed
from app.edge.observe import Observe
from app.edge.origin import Origin
from app.edge.perimeter import Perimeter
from app.edge.prefix import Prefix
from app.edge.problem import headers, problem, translated
from app.edge.shortcut import Shortcut
from app.errors import Refusal
from app.house import House

log = logging.getLogger("conch")

_ROUTERS = (tasks.router, bulk.router, catalog.router, inference.router)
_TITLE: dict[str, Any] = {
    "title": "Conch",
    "version": "1",
    "description": "The REST front door of NVIDIA Triton Inference Server for text models.",
}
_M_MMAP_THRESHOLD = -3  # of malloc.h


def create_app(house: House, record: Record, echo: Echo) -> ASGIApp:
    """The public application: the edge around FastAPI."""
    most = house.settings.max_body_bytes
    hold = Hold(max(house.settings.body_memory_bytes, 2 * most))
    body_limits = BodyLimits(most, house.settings.body_timeout_seconds, hold)
    moorings = bulk.Moorings(house.settings.bulk_posts)
    bulk_limits = bulk.BulkLimits(house.settings.bulk_lines, house.settings.bulk_seconds, moorings)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[dict[str, Any]]:
        async with house.open() as gateway:
            _settle_collector()
            _settle_allocator()
            yield {"gateway": gateway, "body_limits": body_limits, "bulk_limits": bulk_limits}

    settings = house.settings
    api = api_app(lifespan, settings.root_path)
    api.router.routes.extend(health_routes(house.ready))
    fixed = tasks.POSTS.keys() | bulk.POSTS.keys() | {getattr(route, "path", "") for route in api.router.routes}
    pages: dict[Any, str] = {route.endpoint: route.path for route in api.router.routes if isinstance(route, Route)}

    def route_of(scope: Scope) -> str:
        """The template of the path, so that a metric has no label for each path that a stranger thinks of."""
        if scope["path"] in fixed:
            return str(scope["path"])
        return getattr(scope.get("route"), "path", "") or pages.get(scope.get("endpoint"), "unmatched")

    shortcut = Shortcut(api, tasks.POSTS, {**bulk.POSTS, **inference.POSTS})
    doorkeeper = Doorkeeper(house.metrics, Origin(settings.trusted_proxies), settings.auth_failures_per_second)
    perimeter = Perimeter(shortcut, house.directory, doorkeeper, settings.max_body_bytes, house.tokens)
    cross_origin = CrossOrigin(settings.allowed_origins) if settings.allowed_origins else None
    methods = Methods(perimeter, api.router.routes, cross_origin)
    observe = Observe(
        methods,
        house.metrics,
        house.tracing,
        record,
        route_of,
        lambda: house.draining,
        echo,
        settings.gzip_min_bytes,
        cross_origin,
    )
    return Prefix(observe, settings.root_path) if settings.root_path else observe


def api_app(lifespan: Any = None, root_path: str = "") -> FastAPI:
    """FastAPI with every operation, and its document; the bare application, without the edge."""
    api = FastAPI(
        **_TITLE,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        lifespan=lifespan,
        exception_handlers={Refusal: _refused, HTTPException: _untranslated},
    )
    for router in _ROUTERS:
        api.include_router(router)
    api.router.routes.extend(pages(root_path))
    return api


@cache
def pages(root_path: str) -> tuple[Route, ...]:
    """The document and what shows it: the same for every application of a process, and most of what one takes to make."""
    return tuple(docs_routes(document_of(root_path), root_path))


def document_of(root_path: str = "") -> dict[str, Any]:
    routes = [route for router in _ROUTERS for route in router.routes]
    document = get_openapi(routes=routes, **_TITLE)
    return complete(document, (*tasks.REQUESTS, *LINES, InferRequest), problem, root_path)


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
    return await _refused(request, translated(error.status_code, allowed(request.app.router.routes, request.scope["path"])))


def _settle_collector() -> None:
    """What exists now stays, so that the collector need not walk it. It looks seldom, as requests leave no cycles, and at few
    objects at once: 100,000 lists of a body hold the event loop for 10 ms.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 1, 1000)


def _settle_allocator() -> None:
    """Blocks above a size grow in their place. After the first that is freed, glibc would copy all up to 32 MB, in 30 ms."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, 4 * 1024 * 1024)
