"""Where Redis is, read from a URL."""

import ssl
from dataclasses import dataclass
from typing import Any, cast

import hiredis
from redis.asyncio.connection import SSLConnection, UnixDomainSocketConnection, parse_url


@dataclass(frozen=True, slots=True)
class RedisAddress:
    """Where Redis is and how to enter. Its `repr` shows no secrets: it goes into logs."""

    place: str
    host: str
    port: int
    path: str | None
    tls: ssl.SSLContext | None
    greeting: tuple[bytes, ...]

    @classmethod
    def parse(cls, url: str) -> "RedisAddress":
        """`redis://`, `rediss://` or `unix://`, with what redis-py understands in such a URL. Raises `ValueError`."""
        told = cast("dict[str, Any]", parse_url(url))
        host, port, path = told.get("host", "localhost"), int(told.get("port", 6379)), told.get("path")
        kind = told.get("connection_class")
        tls = _tls(told) if kind is SSLConnection else None
        greeting: list[bytes] = []
        if told.get("password") is not None:
            names = (told["username"],) if told.get("username") else ()
            greeting.append(_pack("AUTH", *names, told["password"]))
        if told.get("db"):
            greeting.append(_pack("SELECT", str(told["db"])))
        greeting.append(_pack("PING"))
        unix = path if kind is UnixDomainSocketConnection else None
        return cls(unix or f"{host}:{port}", host, port, unix, tls, tuple(greeting))

    def __repr__(self) -> str:
        return self.place


def _tls(told: dict[str, Any]) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=told.get("ssl_ca_certs"), cadata=told.get("ssl_ca_data"))
    context.check_hostname = bool(told.get("ssl_check_hostname", True))
    if told.get("ssl_cert_reqs") == "none":
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if told.get("ssl_certfile"):
        context.load_cert_chain(told["ssl_certfile"], told.get("ssl_keyfile"), told.get("ssl_password"))
    return context


def _pack(*words: str) -> bytes:
    return cast("bytes", hiredis.pack_command(words))  # type: ignore[arg-type]  # its stub knows only tuples of one
