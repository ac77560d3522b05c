"""The path under which an ingress publishes the gateway."""

from starlette.types import ASGIApp, Receive, Scope, Send


class Prefix:
    """Takes it away again before anything decides on the path. A kubelet never put it there, and some ingresses take it away
    by themselves: then nothing is to be done.
    """

    def __init__(self, app: ASGIApp, root_path: str) -> None:
        self._app = app
        self._root = root_path
        self._raw = root_path.encode("ascii")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and f"{scope['path']}/".startswith(f"{self._root}/"):
            path = scope["path"].removeprefix(self._root) or "/"
            scope = {**scope, "path": path, "raw_path": scope["raw_path"].removeprefix(self._raw)}
        await self._app(scope, receive, send)
