"""`python -m app.alive [/readyz]`, for a container's healthcheck: asks the API where it listens, by TLS if it speaks that."""

import os
import ssl
import sys
from contextlib import closing
from http.client import HTTPConnection, HTTPSConnection

_EVERYWHERE = {"0.0.0.0": "127.0.0.1", "[::]": "::1"}


def answers(path: str = "/livez") -> bool:
    host, _, port = os.environ.get("CONCH_LISTEN", "127.0.0.1:8080").rpartition(":")
    address = _EVERYWHERE.get(host, host.strip("[]")), int(port)
    tls = os.environ.get("CONCH_TLS_CERT_FILE")
    connection = HTTPSConnection(*address, timeout=4, context=_trusting()) if tls else HTTPConnection(*address, timeout=4)
    with closing(connection):
        connection.request("GET", path)
        return connection.getresponse().status == 200


def _trusting() -> ssl.SSLContext:
    """The certificate is for the name that callers use, and this asks itself."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


if __name__ == "__main__":
    sys.exit(not answers(*sys.argv[1:]))
