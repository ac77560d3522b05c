"""Past the framework, for the few paths that carry nearly all requests."""

from collections.abc import Awaitable, Callable, Mapping

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from app.gateway import Gateway

Endpoint = Callable[[Request], Awaitable[Response]]


class Shortcut:
    """Calls the very handlers that FastAPI documents and routes to, without its 100 µs of routing, exit stacks and dependencies
    that these handlers don't use. Refusals rise to the layers above, as everywhere. The `patient` among the paths wait where
    their tenant is over its limit, so that they are not refused for it.
    """

    def __init__(self, app: ASGIApp, posts: Mapping[str, Endpoint], patient: Mapping[str, Endpoint]) -> None:
        self._app = app
        self._posts = {**patient, **posts}
        self._patient = patient.keys()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        endpoint = self._posts.get(scope["path"]) if scope["type"] == "http" and scope["method"] == "POST" else None
        if endpoint is None:
            await self._app(scope, receive, send)
        else:
            if scope["path"] not in self._patient:
                _refuse_known(scope)
            response = await endpoint(Request(scope, receive))
            await response(scope, receive, send)


def _refuse_known(scope: Scope) -> None:
    """Before the body is read: its characters are at most its bytes, which Content-Length tells."""
    length = next((value for name, value in scope["headers"] if name == b"content-length"), b"")
    if length.isdigit():
        state = scope["state"]
        gateway: Gateway = state["gateway"]
        gateway.refuse_known(state["principal"].tenant, int(length), state["exchange"])
