"""A small authority, for tests of TLS."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key
from cryptography.x509.oid import NameOID


@dataclass(frozen=True, slots=True)
class Authority:
    folder: Path
    name: str = "ca"

    @property
    def file(self) -> Path:
        return self.folder / f"{self.name}.pem"

    @classmethod
    def found(cls, folder: Path, name: str = "ca") -> "Authority":
        authority = cls(folder, name)
        key = ec.generate_private_key(ec.SECP256R1())
        constraint = x509.BasicConstraints(ca=True, path_length=0)
        certificate = _named(name, key, name).add_extension(constraint, critical=True).sign(key, SHA256())
        authority._write(name, certificate, key)
        return authority

    def issue(self, name: str) -> tuple[Path, Path]:
        """The files of a certificate for this DNS name or address, and of its key."""
        issuer = x509.load_pem_x509_certificate(self.file.read_bytes())
        issuer_key = load_pem_private_key((self.folder / f"{self.name}.key").read_bytes(), None)
        assert isinstance(issuer_key, ec.EllipticCurvePrivateKey)
        key = ec.generate_private_key(ec.SECP256R1())
        names = x509.SubjectAlternativeName([_general(name)])
        builder = _named(name, key, issuer.subject.rfc4514_string().removeprefix("CN="))
        return self._write(name, builder.add_extension(names, critical=False).sign(issuer_key, SHA256()), key)

    def _write(self, name: str, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> tuple[Path, Path]:
        files = self.folder / f"{name}.pem", self.folder / f"{name}.key"
        files[0].write_bytes(certificate.public_bytes(Encoding.PEM))
        files[1].write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        return files


def _general(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _named(name: str, key: ec.EllipticCurvePrivateKey, issuer: str) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    subject, signer = (x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)]) for common in (name, issuer))
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(signer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=5))
        .not_valid_after(now + timedelta(days=1))
    )
