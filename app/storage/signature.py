"""AWS Signature Version 4 for S3: pure, since it is given the time."""

import hashlib
import hmac
from collections.abc import Mapping
from datetime import datetime
from urllib.parse import quote

from app.storage.credentials import Credentials

EMPTY = hashlib.sha256().hexdigest()
_UNRESERVED = "-_.~"


def path_of(*names: str) -> str:
    """S3 wants each character but the unreserved ones and the slash encoded, once."""
    return quote("/" + "/".join(names), safe=f"/{_UNRESERVED}")


def query_of(parameters: Mapping[str, str]) -> str:
    pairs = sorted((quote(name, safe=_UNRESERVED), quote(value, safe=_UNRESERVED)) for name, value in parameters.items())
    return "&".join(f"{name}={value}" for name, value in pairs)


def signed(
    method: str,
    target: str,
    headers: Mapping[str, str],
    payload: str,
    credentials: Credentials,
    region: str,
    now: datetime,
) -> dict[str, str]:
    """The headers to send. `target` is path and query as they go out; `headers` has lower-case names, the host among them;
    `payload` is the SHA-256 of the body, which S3 compares."""
    moment = f"{now:%Y%m%dT%H%M%SZ}"
    scope = f"{now:%Y%m%d}/{region}/s3/aws4_request"
    token = {"x-amz-security-token": credentials.session_token} if credentials.session_token else {}
    sent = {**headers, "x-amz-content-sha256": payload, "x-amz-date": moment, **token}
    names = ";".join(sorted(sent))
    path, _, query = target.partition("?")
    canonical = "\n".join(
        (method, path, query, *(f"{name}:{' '.join(sent[name].split())}" for name in sorted(sent)), "", names, payload)
    )
    digest = hashlib.sha256(canonical.encode()).hexdigest()
    key = f"AWS4{credentials.secret_key}".encode()
    for part in scope.split("/"):
        key = _hmac(key, part)
    signature = _hmac(key, f"AWS4-HMAC-SHA256\n{moment}\n{scope}\n{digest}").hex()
    credential = f"Credential={credentials.access_key}/{scope}"
    return sent | {"authorization": f"AWS4-HMAC-SHA256 {credential},SignedHeaders={names},Signature={signature}"}


def _hmac(key: bytes, text: str) -> bytes:
    return hmac.digest(key, text.encode(), "sha256")
