"""Every refusal as one shape: RFC 9457 problem details."""

from typing import Any

from pydantic_core import to_json
from starlette.types import Send
from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from app.errors import Internal, MethodNotAllowed, NotFound, Refusal, sentence

_OPENAI = ("/v1/embeddings", "/v1/models")
_OPENAI_TYPES = {401: "authentication_error", 403: "permission_error", 404: "not_found_error", 429: "rate_limit_error"}
_WORTH_TRYING_AGAIN = (408, 429, 502, 503, 504)
_MOST_PATIENCE = 60
"""Seconds that clients wait at most; told to wait for longer, some try again at once."""


def problem(refusal: Refusal, request_id: str, path: str) -> bytes:
    """The body. OpenAI's clients read an `error` object, so that on their routes it is there as well."""
    content: dict[str, Any] = {
        "type": f"/problems/{refusal.code}",
        "title": refusal.title,
        "status": refusal.status,
        "detail": sentence(refusal.detail),
        "code": refusal.code,
        "request_id": request_id,
    }
    if refusal.flaws:
        content["errors"] = [
            {"pointer": flaw.pointer, "code": flaw.code, "detail": sentence(flaw.detail)} for flaw in refusal.flaws
        ]
    if path.startswith(_OPENAI):
        kind = _OPENAI_TYPES.get(refusal.status, "server_error" if refusal.status >= 500 else "invalid_request_error")
        flaw = refusal.flaws[0] if refusal.flaws else None
        message = " ".join(dict.fromkeys([content["detail"], *([sentence(flaw.detail)] if flaw else [])]))
        param = flaw.pointer.removeprefix("/") or None if flaw else None
        content["error"] = {"message": message, "type": kind, "param": param, "code": refusal.code}
    if path == "/v2" or path.startswith("/v2/"):
        flaws = "".join(f" {flaw.pointer}: {sentence(flaw.detail)}" for flaw in refusal.flaws[:1])
        content["error"] = content["detail"] + flaws
    return to_json(content)


def headers(refusal: Refusal) -> list[tuple[bytes, bytes]]:
    fields = [(b"content-type", b"application/problem+json"), (b"cache-control", b"no-store")]
    if refusal.retry_after is not None:
        fields.append((b"retry-after", str(refusal.retry_after).encode()))
    if refusal.status not in _WORTH_TRYING_AGAIN or (refusal.retry_after or 0) > _MOST_PATIENCE:
        fields.append((b"x-should-retry", b"false"))  # heeded by OpenAI's clients, which would else try any 5xx and 429 again
    return fields + [(name.encode(), value.encode()) for name, value in refusal.headers]


async def send_problem(send: Send, refusal: Refusal, request_id: str, path: str) -> None:
    body = problem(refusal, request_id, path)
    fields = [*headers(refusal), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": refusal.status, "headers": fields})
    await send({"type": "http.response.body", "body": body})


def farewell(refusal: Refusal, request_id: str) -> bytes:
    """The whole response, of a connection that then closes."""
    body = problem(refusal, request_id, "")
    fields = [
        *headers(refusal),
        (b"x-request-id", request_id.encode()),
        (b"content-length", str(len(body)).encode()),
        (b"connection", b"close"),
    ]
    return b"".join([STATUS_LINE[refusal.status], *(b"%s: %s\r\n" % field for field in fields), b"\r\n", body])


def translated(status: int, allow: str | None) -> Refusal:
    """What the router itself refuses."""
    if status == 404:
        return NotFound("there is nothing at this path; GET /openapi.json lists what there is")
    if status == 405:
        detail = f"this path does not take this method{f', but {allow}' if allow else ''}"
        return MethodNotAllowed(detail, headers=(("allow", allow),) if allow else ())
    return Internal("Conch failed; the log has more under this request_id")
