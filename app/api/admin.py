"""The private listener: metrics for Prometheus, and `/status` for whoever wants to know why."""

from collections.abc import Callable
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from app.api.health import health_routes

Exposition = Callable[[str], tuple[bytes, str]]
"""The metrics in a format that fits an Accept header, and the format's name."""


def admin_app(exposition: Exposition, status: Callable[[], dict[str, Any]], ready: Callable[[], bool]) -> Starlette:
    async def metrics(request: Request) -> Response:
        body, media_type = exposition(request.headers.get("accept", ""))
        return Response(body, headers={"content-type": media_type})

    async def show(request: Request) -> Response:
        return JSONResponse(status())

    return Starlette(routes=[Route("/metrics", metrics), Route("/status", show), *health_routes(ready)])
