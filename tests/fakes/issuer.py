"""An identity provider on loopback: signs tokens as asked, and serves its keys, or fails to."""

import json
import ssl
import threading
import time
from collections.abc import Callable
from functools import lru_cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from tests.gateway.problems import CANARY

_ALGORITHMS = jwt.algorithms.get_default_algorithms()
Answer = Callable[[BaseHTTPRequestHandler], None]


def private_key(kid: str, algorithm: str = "RS256") -> Any:
    return _made(kid, algorithm)


@lru_cache(maxsize=64)
def _made(kid: str, algorithm: str) -> Any:
    """One for each name and algorithm, made once: RSA keys take a while."""
    match algorithm[:2]:
        case "RS" | "PS":
            return rsa.generate_private_key(65537, 2048)
        case "ES":
            return ec.generate_private_key({"256": ec.SECP256R1(), "384": ec.SECP384R1(), "512": ec.SECP521R1()}[algorithm[2:]])
        case _:
            return ed25519.Ed25519PrivateKey.generate()


def jwk(kid: str, algorithm: str = "RS256", **members: Any) -> dict[str, Any]:
    public = private_key(kid, algorithm).public_key()
    return {**_ALGORITHMS[algorithm].to_jwk(public, as_dict=True), "kid": kid, "alg": algorithm, "use": "sig", **members}


class FakeIssuer:
    """`asked` counts the fetches of its keys; `minted` holds every token it ever signed."""

    def __init__(self, name: str = "https://idp.example", tls: ssl.SSLContext | None = None) -> None:
        self.name = name
        self._tls = tls
        self.asked = 0
        self.minted: list[str] = []
        self.keys: list[dict[str, Any]] = [jwk("k1")]
        self.answer: Answer = self.serve
        self._server: ThreadingHTTPServer | None = None
        self.url = ""
        self.appear()

    def appear(self) -> None:
        issuer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                issuer.asked += 1
                issuer.answer(self)

            def log_message(self, *_: object) -> None: ...

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_: object) -> None: ...  # who leaves early leaves no traceback

        port = int(self.url.rsplit(":", 1)[1].partition("/")[0]) if self.url else 0
        self._server = server = Server(("127.0.0.1", port), Handler)
        if self._tls is not None:
            server.socket = self._tls.wrap_socket(server.socket, server_side=True)
        self.url = f"{'https' if self._tls else 'http'}://127.0.0.1:{server.server_port}/jwks"
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def vanish(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            server.shutdown()
            server.server_close()

    def serve(self, request: BaseHTTPRequestHandler) -> None:
        send(request, 200, json.dumps({"keys": self.keys}).encode())

    def entry(self, **fields: Any) -> dict[str, Any]:
        return {"audiences": ["conch"], "algorithms": ["RS256"], "jwks_url": self.url, **fields}

    def claims(self, **claims: Any) -> dict[str, Any]:
        """Those of a good token for the tenant `open`; `None` takes one away."""
        now = int(time.time())
        given = {
            "iss": self.name,
            "aud": "conch",
            "sub": CANARY,
            "exp": now + 600,
            "iat": now,
            "tenant": "open",
            "scope": "infer",
        }
        return {name: value for name, value in {**given, **claims}.items() if value is not None}

    def token(self, *, kid: str = "k1", algorithm: str = "RS256", header: dict[str, Any] | None = None, **claims: Any) -> str:
        fields = {"kid": kid, **(header or {})}
        return self.sign(self.claims(**claims), private_key(kid, algorithm), algorithm, fields)

    def sign(self, claims: dict[str, Any], key: Any, algorithm: str, header: dict[str, Any]) -> str:
        token = jwt.encode(claims, key, algorithm, headers={name: value for name, value in header.items() if value is not None})
        self.minted.append(token)
        return token


def send(request: BaseHTTPRequestHandler, status: int, body: bytes, **headers: str) -> None:
    request.send_response(status)
    for name, value in headers.items():
        request.send_header(name.replace("_", "-"), value)
    request.send_header("content-length", str(len(body)))
    request.end_headers()
    request.wfile.write(body)
