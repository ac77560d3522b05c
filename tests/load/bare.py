"""What a refusal can cost at the least: uvicorn, and an answer that is always the same. `bench.py` compares with it."""

from starlette.types import Receive, Scope, Send

BODY = b"{}" * 150
FIELDS = [(b"content-type", b"application/problem+json"), (b"content-length", b"300"), (b"retry-after", b"1")]


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 429, "headers": FIELDS})
    await send({"type": "http.response.body", "body": BODY})
