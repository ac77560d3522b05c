"""Swagger UI and ReDoc from the files that `fastapi-offline` carries: nothing is asked of a CDN."""

import asyncio
import json
from importlib.resources import files
from pathlib import Path

from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, JSONResponse, Response
from starlette.routing import Route

_ASSETS = {
    "swagger-ui-bundle.js": "text/javascript",
    "swagger-ui.css": "text/css",
    "favicon.png": "image/png",
}
_REDOC_SCRIPT = "redoc.standalone.js"
_LOGO = "https://cdn.redoc.ly/redoc/logo-mini.svg"
"""The one thing that ReDoc asks of somebody else."""
_KEPT = {"cache-control": "public, max-age=86400"}
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; font-src 'self' data:; "
    "connect-src 'self'; worker-src blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_PAGE = """<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>Conch</title>{head}</head>
<body style="margin:0">{body}</body>
</html>
"""
_SWAGGER = _PAGE.format(
    head='<link rel="icon" href="docs/favicon.png"><link rel="stylesheet" href="docs/swagger-ui.css">',
    body='<div id="swagger-ui"></div><script src="docs/swagger-ui-bundle.js"></script><script src="docs/start.js"></script>',
)
_REDOC = _PAGE.format(
    head='<link rel="icon" href="docs/favicon.png">',
    body='<redoc spec-url="openapi.json"></redoc><script src="docs/redoc.standalone.js"></script>',
)
# The key is kept in the page alone: it is gone with the tab, and is written nowhere.
_OPTIONS = {
    "url": "openapi.json",
    "dom_id": "#swagger-ui",
    "deepLinking": True,
    "displayRequestDuration": True,
    "tryItOutEnabled": True,
    "defaultModelsExpandDepth": 0,
    "persistAuthorization": False,
}
_START = f"SwaggerUIBundle({json.dumps(_OPTIONS)});"


def docs_routes(document: dict[str, object]) -> list[Route]:
    static = Path(str(files("fastapi_offline") / "static"))

    async def openapi(request: Request) -> Response:
        return JSONResponse(document)

    async def swagger(request: Request) -> Response:
        return HTMLResponse(_SWAGGER, headers={"content-security-policy": _POLICY})

    async def redoc(request: Request) -> Response:
        return HTMLResponse(_REDOC, headers={"content-security-policy": _POLICY})

    async def start(request: Request) -> Response:
        return Response(_START, media_type="text/javascript")

    async def redoc_script(request: Request) -> Response:
        script = await asyncio.to_thread((static / _REDOC_SCRIPT).read_text, "utf-8")
        return Response(script.replace(_LOGO, "docs/favicon.png"), media_type="text/javascript", headers=_KEPT)

    def asset(name: str, media_type: str) -> Route:
        async def send(request: Request) -> Response:
            return FileResponse(static / name, media_type=media_type, headers=_KEPT)

        return Route(f"/docs/{name}", send, methods=["GET"])

    pages = [
        Route("/openapi.json", openapi),
        Route("/docs", swagger),
        Route("/docs/start.js", start),
        Route("/redoc", redoc),
        Route(f"/docs/{_REDOC_SCRIPT}", redoc_script),
    ]
    return pages + [asset(name, media_type) for name, media_type in _ASSETS.items()]
