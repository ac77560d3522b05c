"""For a kubelet: no key, no Redis, no details. Those are on the admin port."""

from collections.abc import Callable

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route


def health_routes(ready: Callable[[], bool]) -> list[Route]:
    async def livez(request: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def readyz(request: Request) -> Response:
        return PlainTextResponse("ok\n") if ready() else PlainTextResponse("not ready\n", 503)

    return [Route("/livez", livez, methods=["GET"]), Route("/readyz", readyz, methods=["GET"])]
