"""Past the framework, for the few paths that carry nearly all requests."""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from app.errors import Refusal
from app.gateway import Gateway

Endpoint = Callable[..., Awaitable[Response]]
"""It is given the request, and what is in its path, by name."""


class Shortcut:
    """Calls the very handlers that FastAPI documents and routes to, without its 100 µs of routing, exit stacks and dependencies
    that these handlers don't use. Refusals rise to the layers above, as everywhere. The `patient` among the paths see for
    themselves to a tenant that is over its limit.
    """

    def __init__(self, app: ASGIApp, posts: Mapping[str, Endpoint], patient: Mapping[str, Endpoint]) -> None:
        """By their paths; the patient ones also by templates of them."""
        self._app = app
        self._posts = {**{path: endpoint for path, endpoint in patient.items() if "{" not in path}, **posts}
        self._patient = patient.keys()
        self._templates = [(Route(path, endpoint), endpoint) for path, endpoint in patient.items() if "{" in path]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        response = None
        if scope["type"] == "http" and scope["method"] == "POST":
            response = self._answer(scope, Request(scope, receive))
        if response is None:
            await self._app(scope, receive, send)
        else:
            await (await response)(scope, receive, send)

    def _answer(self, scope: Scope, request: Request) -> Awaitable[Response] | None:
        path = scope["path"]
        if (endpoint := self._posts.get(path)) is not None:
            if path not in self._patient:
                _refuse_known(scope)
            return endpoint(request)
        for route, endpoint in self._templates:
            if (match := route.path_regex.match(path)) is not None:
                scope["route"] = route
                return endpoint(request, **match.groupdict())
        return None


def _refuse_known(scope: Scope) -> None:
    """Before the body is read: its characters are at most its bytes, which Content-Length tells."""
    length = next((value for name, value in scope["headers"] if name == b"content-length"), b"")
    if length.isdigit():
        state = scope["state"]
        gateway: Gateway = state["gateway"]
        tenant = state["principal"].tenant
        try:
            gateway.refuse_known(tenant, int(length), state["exchange"])
        except Refusal:
            state["recall"] = partial(gateway.limiter.recall, tenant)  # what is told may be told again
            raise
