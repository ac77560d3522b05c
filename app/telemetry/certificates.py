"""When certificates expire."""

from datetime import UTC, datetime


def expiry(pem: bytes) -> float:
    """Seconds since 1970 at which the first of these certificates expires. Raises `ValueError` where there is none to read."""
    from cryptography.x509 import load_pem_x509_certificates  # heavy, and of no use where there is no TLS

    first: datetime = min(certificate.not_valid_after_utc for certificate in load_pem_x509_certificates(pem))
    return first.astimezone(UTC).timestamp()
