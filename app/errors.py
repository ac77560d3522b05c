"""Everything Conch may answer instead of a result: one closed family.

Refusal
 ├ Malformed            400  the bytes are not a request: broken JSON, bad encoding, bad header
 ├ Unauthenticated      401  no key, or none that we know
 ├ Forbidden            403  known, but without the scope
 ├ UnknownModel         404  no such model, or not one that this tenant may see
 ├ NotFound             404  no such path
 ├ MethodNotAllowed     405
 ├ RequestTimeout       408  the body did not arrive in time
 ├ TooLarge             413  more bytes than the cap
 ├ UriTooLong           414
 ├ UnsupportedMedia     415  not JSON, or compressed
 ├ InvalidInput         422  well-formed, but outside the rules; `flaws` point to the items
 ├ HeadersTooLarge      431
 ├ OverLimit            429  the tenant's own limit
 │  ├ RateLimited            requests or characters per time
 │  ├ QuotaExhausted         characters per day
 │  └ TooManyInFlight        requests at once
 ├ ClientClosed         499  the caller left (counted, never sent)
 ├ Internal             500  our own fault
 ├ UpstreamError        502  Triton failed while it computed
 ├ BadUpstreamResponse  502  Triton answered something that can't be trusted
 ├ Unready              503
 │  ├ Overloaded             our capacity or Triton's is used up
 │  ├ Unavailable            Triton can't be reached
 │  └ ModelUnavailable       this model can't be served now
 └ DeadlineExceeded     504  the time given for the request has passed

Each leaf has its own stable `code`, and `docs/errors.md` has a section for each. The words in `detail` are ours alone: neither
a tenant's text nor Triton's ever goes into one.
"""

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, slots=True)
class Flaw:
    """One fault of a request: `pointer` is a JSON pointer (RFC 6901) into the body, such as `/inputs/3`."""

    pointer: str
    code: str
    detail: str


class Refusal(Exception):
    """The base of the family.

    `retry_after` is in whole seconds, at least 1 where given. `executed` is False where Triton surely never ran the request, so
    that what it cost is given back.
    """

    status: ClassVar[int]
    code: ClassVar[str]
    title: ClassVar[str]

    def __init__(
        self,
        detail: str,
        *,
        retry_after: int | None = None,
        flaws: tuple[Flaw, ...] = (),
        headers: tuple[tuple[str, str], ...] = (),
        executed: bool = True,
    ) -> None:
        super().__init__(detail)
        self.detail = detail
        self.retry_after = retry_after
        self.flaws = flaws
        self.headers = headers
        self.executed = executed


class Malformed(Refusal):
    status, code, title = 400, "malformed_request", "The request is malformed"


class Unauthenticated(Refusal):
    status, code, title = 401, "unauthenticated", "The request carries no valid credential"


class Forbidden(Refusal):
    status, code, title = 403, "forbidden", "The credential does not allow this"


class UnknownModel(Refusal):
    status, code, title = 404, "unknown_model", "There is no such model"


class NotFound(Refusal):
    status, code, title = 404, "not_found", "There is nothing at this path"


class MethodNotAllowed(Refusal):
    status, code, title = 405, "method_not_allowed", "The path does not take this method"


class RequestTimeout(Refusal):
    status, code, title = 408, "request_timeout", "The request did not arrive in time"


class TooLarge(Refusal):
    status, code, title = 413, "too_large", "The body is too large"


class UriTooLong(Refusal):
    status, code, title = 414, "uri_too_long", "The request target is too long"


class UnsupportedMedia(Refusal):
    status, code, title = 415, "unsupported_media_type", "The body's media type is not supported"


class InvalidInput(Refusal):
    status, code, title = 422, "invalid_input", "The request is outside the rules"


class HeadersTooLarge(Refusal):
    status, code, title = 431, "headers_too_large", "The header section is too large"


class OverLimit(Refusal):
    status = 429


class RateLimited(OverLimit):
    code, title = "rate_limited", "The tenant's rate limit is reached"


class QuotaExhausted(OverLimit):
    code, title = "quota_exhausted", "The tenant's daily quota is spent"


class TooManyInFlight(OverLimit):
    code, title = "too_many_in_flight", "The tenant has too many requests in flight"


class ClientClosed(Refusal):
    status, code, title = 499, "client_closed", "The caller left"


class Internal(Refusal):
    status, code, title = 500, "internal_error", "Conch failed"


class UpstreamError(Refusal):
    status, code, title = 502, "upstream_error", "The model failed"


class BadUpstreamResponse(Refusal):
    status, code, title = 502, "bad_upstream_response", "The model's answer can't be trusted"


class Unready(Refusal):
    """What it cost is always given back: even where Triton may have run it, nobody got an answer."""

    status = 503


class Overloaded(Unready):
    code, title = "overloaded", "There is no capacity left"


class Unavailable(Unready):
    code, title = "unavailable", "The model server can't be reached"


class ModelUnavailable(Unready):
    code, title = "model_unavailable", "The model can't be served now"


class DeadlineExceeded(Refusal):
    status, code, title = 504, "deadline_exceeded", "The request's time is up"


def family(root: type[Refusal] = Refusal) -> list[type[Refusal]]:
    """Every kind that can be raised, in the order drawn above."""
    children = root.__subclasses__()
    return [kind for child in children for kind in family(child)] if children else [root]


def sentence(detail: str) -> str:
    return detail[0].upper() + detail[1:] + ("" if detail.endswith(".") else ".")
