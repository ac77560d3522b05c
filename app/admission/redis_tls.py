"""TLS to Redis: who is believed, and which certificate is shown."""

import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_FILES = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile")


class RedisTls:
    """`told` is what redis-py reads in a URL. The files are read again when they have changed: certificates are renewed."""

    def __init__(self, told: Mapping[str, Any]) -> None:
        """Raises `OSError` where a file can't be used."""
        self._told = told
        self._files = [Path(told[name]) for name in _FILES if told.get(name)]
        self._seen: list[tuple[int, int]] = []
        self._context: ssl.SSLContext | None = None
        self.context()

    def context(self) -> ssl.SSLContext:
        """For the next connection. Raises `OSError` where a file can't be used now."""
        there = [(state.st_mtime_ns, state.st_ino) for state in (file.stat() for file in self._files)]
        if self._context is None or there != self._seen:
            self._context, self._seen = self._made(), there
        return self._context

    def _made(self) -> ssl.SSLContext:
        told = self._told
        context = ssl.create_default_context(cafile=told.get("ssl_ca_certs"), cadata=told.get("ssl_ca_data"))
        context.check_hostname = bool(told.get("ssl_check_hostname", True))
        if told.get("ssl_cert_reqs") == "none":
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if told.get("ssl_certfile"):
            context.load_cert_chain(told["ssl_certfile"], told.get("ssl_keyfile"), told.get("ssl_password"))
        return context


def reason(error: Exception | None) -> str:
    """Why there is no connection, in words that hold no secret."""
    match error:
        case ssl.SSLCertVerificationError():
            return f"its certificate is not trusted: {error.verify_message}"
        case ssl.SSLError():
            return f"TLS: {(error.reason or type(error).__name__).lower().replace('_', ' ')}"
        case OSError():
            return error.strerror or type(error).__name__
        case _:
            return ""
