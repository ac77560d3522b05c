"""The pages for people: Swagger UI, ReDoc and what each error means. All of it is here: nothing is asked of a CDN."""

import asyncio
from functools import cache
from importlib.resources import files
from pathlib import Path
from string import Template

from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from app.api.document import Json, serialized
from app.api.openapi_30 import in_3_0
from app.api.problem_pages import ProblemPages

_PAGES = Path(str(files("app.api") / "pages"))
_PACKAGED = Path(str(files("fastapi_offline") / "static"))
_ASSETS = {
    "swagger-ui-bundle.js": (_PACKAGED, "text/javascript"),
    "swagger-ui.css": (_PACKAGED, "text/css"),
    "start.js": (_PAGES, "text/javascript"),
    "docs.css": (_PAGES, "text/css"),
    "logo.svg": (_PAGES, "image/svg+xml"),
}
_REDOC_SCRIPT = "redoc.standalone.js"
_REDOC_LOGO = b"https://cdn.redoc.ly/redoc/logo-mini.svg"
"""The one thing that ReDoc asks of somebody else."""
_KEPT = {"cache-control": "public, max-age=3600"}
_KEPT_AS_IT_IS = {"cache-control": "public, max-age=3600, no-transform"}
"""A megabyte takes long to compress, for whoever asks without a key."""
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'{}; img-src 'self' data:; font-src 'self' data:; "
    "connect-src 'self'; worker-src blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_STRICT = {"content-security-policy": _POLICY.format("")}
_WITH_STYLES = {"content-security-policy": _POLICY.format(" 'unsafe-inline'")}
"""Both make styles as they run, ReDoc even whole sheets of them."""


def docs_routes(document: Json, root_path: str = "") -> list[Route]:
    frame = Template((_PAGES / "frame.html").read_text("utf-8"))

    def page(title: str, content: str, root: str = "", styles: str = "", scripts: str = "") -> str:
        return frame.substitute(title=title, content=content, root=root, styles=styles, scripts=scripts)

    swagger = page(
        "Conch",
        '<div id="swagger-ui"></div>',
        styles='<link rel="stylesheet" href="docs/swagger-ui.css">\n',
        scripts='<script src="docs/swagger-ui-bundle.js"></script>\n<script src="docs/start.js"></script>\n',
    )
    redoc = page(
        "Conch, to read",
        '<redoc spec-url="openapi.json"></redoc>',
        scripts=f'<script src="docs/{_REDOC_SCRIPT}"></script>\n',
    )
    problems = ProblemPages((_PAGES / "errors.md").read_text("utf-8"), page)

    async def to_docs(request: Request) -> Response:
        return RedirectResponse(f"{root_path}/docs" if root_path else "docs")

    async def redoc_script(request: Request) -> Response:
        return Response(await asyncio.to_thread(_redoc_script), media_type="text/javascript", headers=_KEPT_AS_IT_IS)

    async def problem_list(request: Request) -> Response:
        return HTMLResponse(problems.list, headers=_STRICT)

    async def problem(request: Request) -> Response:
        return HTMLResponse(problems.of(request.path_params["code"]), headers=_STRICT)

    return [
        Route("/", to_docs),
        _fixed("/docs", swagger.encode(), "text/html; charset=utf-8", _WITH_STYLES),
        _fixed("/redoc", redoc.encode(), "text/html; charset=utf-8", _WITH_STYLES),
        _fixed("/openapi.json", serialized(document), "application/json"),
        _fixed("/openapi-3.0.json", serialized(in_3_0(document)), "application/json"),
        Route(f"/docs/{_REDOC_SCRIPT}", redoc_script),
        *(_asset(name, folder, media_type) for name, (folder, media_type) in _ASSETS.items()),
        Route("/problems", problem_list),
        Route("/problems/{code}", problem),
    ]


@cache
def _redoc_script() -> bytes:
    return (_PACKAGED / _REDOC_SCRIPT).read_bytes().replace(_REDOC_LOGO, b"docs/logo.svg")


def _fixed(path: str, body: bytes, media_type: str, headers: dict[str, str] | None = None) -> Route:
    async def send(request: Request) -> Response:
        return Response(body, media_type=media_type, headers=headers)

    return Route(path, send, methods=["GET"])


def _asset(name: str, folder: Path, media_type: str) -> Route:
    async def send(request: Request) -> Response:
        return FileResponse(folder / name, media_type=media_type, headers=_KEPT)

    return Route(f"/docs/{name}", send, methods=["GET"])
