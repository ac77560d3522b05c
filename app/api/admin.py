"""The private listener: metrics for Prometheus, and `/status` for whoever wants to know why."""

from collections.abc import Callable
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from app.api.health import health_routes


def admin_app(exposition: Callable[[], bytes], status: Callable[[], dict[str, Any]], ready: Callable[[], bool]) -> Starlette:
    async def metrics(request: Request) -> Response:
        return Response(exposition(), media_type="text/plain; version=0.0.4; charset=utf-8")

    async def show(request: Request) -> Response:
        return JSONResponse(status())

    return Starlette(routes=[Route("/metrics", metrics), Route("/status", show), *health_routes(ready)])
