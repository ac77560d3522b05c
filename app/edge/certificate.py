"""TLS of a listener, whose files may be renewed while connections live."""

import asyncio
import logging
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

log = logging.getLogger("conch.edge")

_INTERVAL = 1.0


class CertificateUnusable(ValueError):
    """Nobody could be answered with these files; the message says why."""


@dataclass(frozen=True, slots=True)
class CertificateFiles:
    """Of a listener that settings call `name`: PEM, of which `clients` vouches for those who may connect (mTLS)."""

    name: str
    certificate: Path
    key: Path
    clients: Path | None = None

    @property
    def setting(self) -> str:
        return f"CONCH_{self.name.upper()}_*_FILE"


class Certificate:
    """Each handshake takes the newest files that fit together; a connection keeps what it began with."""

    def __init__(self, files: CertificateFiles, show: Callable[[Mapping[str, bytes]], None]) -> None:
        """`show` is told of what is in use. Raises `CertificateUnusable`."""
        self._files = files
        self._show = show
        self._read: dict[str, bytes] = {}
        self._told = ""
        try:
            self._renew()
        except OSError as error:
            raise CertificateUnusable(self._fault(error)) from error

    def context(self) -> ssl.SSLContext:
        """The listener keeps this one, and each handshake is led over to the newest."""
        front = self._context()
        front.sni_callback = lambda connection, name, of: setattr(connection, "context", self._newest)
        return front

    async def watch(self) -> None:
        """Runs until it is cancelled."""
        while True:
            await asyncio.sleep(_INTERVAL)
            self.renew()

    def renew(self) -> None:
        """Files that can't be used change nothing: it is told once, and tried again."""
        try:
            if self._renew():
                self._told = ""
                log.info("%s: renewed", self._files.setting)
        except OSError as error:
            if (fault := self._fault(error)) != self._told:
                self._told = fault
                log.warning(fault)

    def _renew(self) -> bool:
        files = self._files
        named = {"cert_file": files.certificate, "key_file": files.key, "client_ca_file": files.clients}
        read = {f"{files.name}_{name}": file.read_bytes() for name, file in named.items() if file}
        if read == self._read:
            return False
        self._newest = self._context()
        self._read = read
        self._show({name: pem for name, pem in read.items() if not name.endswith("_key_file")})
        return True

    def _context(self) -> ssl.SSLContext:
        files = self._files
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.options |= ssl.OP_NO_RENEGOTIATION
        context.set_alpn_protocols(["http/1.1"])
        context.load_cert_chain(files.certificate, files.key, password="")  # a key that has one must not ask at a terminal
        if files.clients:
            context.load_verify_locations(files.clients)
            context.verify_mode = ssl.CERT_REQUIRED
            # A session that is resumed is not asked for its certificate again, whoever vouches for it by then.
            context.minimum_version = ssl.TLSVersion.TLSv1_3
            context.num_tickets = 0
        return context

    def _fault(self, error: OSError) -> str:
        reason = getattr(error, "reason", None) or error.strerror or "it is not PEM"
        return f"{self._files.setting} can't be used: {reason}"
