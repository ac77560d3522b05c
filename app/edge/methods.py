"""What every path takes beside its own methods: HEAD where there is a GET, and OPTIONS, which asks for no key."""

from collections.abc import Awaitable, Iterable, Iterator

from starlette.routing import BaseRoute, Match
from starlette.types import ASGIApp, Receive, Scope, Send

from app.edge.cross_origin import CrossOrigin
from app.errors import NotFound


class Methods:
    def __init__(self, app: ASGIApp, routes: Iterable[BaseRoute], cross_origin: CrossOrigin | None = None) -> None:
        self._app = app
        self._routes = routes
        self._cross_origin = cross_origin

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        if scope["type"] == "http":
            if scope["method"] == "HEAD":
                return self._head(scope, receive, send)
            if scope["method"] == "OPTIONS":
                return self._options(scope, send)
        return self._app(scope, receive, send)

    async def _head(self, scope: Scope, receive: Receive, send: Send) -> None:
        """A GET for all who look at this scope; the server, which has its own, sends no body."""
        asked = {**scope, "method": "GET"}
        try:
            await self._app(asked, receive, send)
        finally:
            scope["route"] = asked.get("route")

    async def _options(self, scope: Scope, send: Send) -> None:
        allow = allowed(self._routes, scope["path"])
        if not allow:
            raise NotFound("there is nothing at this path; GET /openapi.json lists what there is")
        fields = [(b"allow", allow.encode())]
        if self._cross_origin is not None:
            fields += self._cross_origin.preflight(scope, allow)
        await send({"type": "http.response.start", "status": 204, "headers": fields})
        await send({"type": "http.response.body"})


def allowed(routes: Iterable[BaseRoute], path: str) -> str:
    """The value of `Allow`: every method that some route takes at this path; empty where there is none."""
    methods: set[str] = set()
    asked = {"type": "http", "method": "OPTIONS", "path": path, "root_path": "", "headers": []}
    for route in _leaves(routes):
        if path == "*" or route.matches(asked)[0] != Match.NONE:
            methods |= getattr(route, "methods", None) or set()
    if "GET" in methods:
        methods.add("HEAD")
    return ", ".join(sorted(methods | {"OPTIONS"})) if methods else ""


def _leaves(routes: Iterable[BaseRoute]) -> Iterator[BaseRoute]:
    """FastAPI keeps a router that is included as one route, which does not tell its methods."""
    for route in routes:
        included = getattr(route, "original_router", None)
        if included is None:
            yield route
        else:
            yield from _leaves(included.routes)
