"""The gateway as a part of the stack on one machine."""

from pathlib import Path

import pytest

from app.local.address import Address
from app.local.gateway import gateway
from app.settings import Settings


def test_certificates_of_another_place_are_left_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "tls.pem").touch()
    for name in ("TLS_CERT", "TLS_KEY", "ADMIN_TLS_CERT", "ADMIN_TLS_KEY", "ADMIN_TLS_CLIENT_CA"):
        monkeypatch.setenv(f"CONCH_{name}_FILE", str(tmp_path / "tls.pem"))
    environment = gateway(Address("127.0.0.1", 8080), {}, tmp_path).environment
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    settings = Settings()
    assert [settings.tls_cert_file, settings.admin_tls_key_file, settings.admin_tls_client_ca_file] == [None] * 3
