"""The form of a key: `ck_<env>_<id>_<secret><checksum>`.

The prefix lets scanners find a leaked key, the underscores let a double click select all of it, and the checksum tells a typo
from a key that nobody knows, without asking anybody.
"""

import hashlib
import re
import secrets
import string
from dataclasses import dataclass
from zlib import crc32

_DIGITS = string.digits + string.ascii_uppercase + string.ascii_lowercase
_SECRET_LENGTH = 27  # 62 ** 27 > 2 ** 160
_CHECKSUM_LENGTH = 6  # 62 ** 6 > 2 ** 32
_ENV = re.compile(r"[a-z0-9]{1,16}")
_ID = re.compile(r"[a-z0-9-]{1,64}")
_KEY = re.compile(rf"ck_({_ENV.pattern})_({_ID.pattern})_([0-9A-Za-z]{{{_SECRET_LENGTH + _CHECKSUM_LENGTH}}})")


class KeyMalformed(ValueError):
    """Not of the form of a key at all."""


class KeyMistyped(ValueError):
    """Of the right form, but its checksum does not hold: a character is wrong."""


@dataclass(frozen=True, slots=True)
class Key:
    """What a key says of itself; the secret stays where it was."""

    env: str
    id: str


def new_key(env: str, key_id: str) -> tuple[str, str]:
    """A fresh key and its digest, as `tenants.yaml` wants it. The key itself is nowhere else: show it once."""
    if not _ENV.fullmatch(env):
        raise ValueError("env: 1 to 16 lower-case letters and digits")
    if not _ID.fullmatch(key_id):
        raise ValueError("id: 1 to 64 lower-case letters, digits and hyphens")
    body = f"ck_{env}_{key_id}_{''.join(secrets.choice(_DIGITS) for _ in range(_SECRET_LENGTH))}"
    text = body + _checksum(body)
    return text, digest(text.encode()).hex()


def read_key(text: str) -> Key:
    """Raises `KeyMalformed` or `KeyMistyped`. A key that reads well may still be unknown."""
    match = _KEY.fullmatch(text)
    if match is None:
        raise KeyMalformed("a key looks like ck_<env>_<id>_<33 letters and digits>")
    if not secrets.compare_digest(_checksum(text[:-_CHECKSUM_LENGTH]), text[-_CHECKSUM_LENGTH:]):
        raise KeyMistyped("the key's checksum does not hold: a character is wrong or missing")
    return Key(env=match[1], id=match[2])


def digest(key: bytes) -> bytes:
    """SHA-256 of the whole key as sent. A secret of 160 random bits needs no salt and no slow hash."""
    return hashlib.sha256(key).digest()


def _checksum(body: str) -> str:
    number, text = crc32(body.encode()), ""
    for _ in range(_CHECKSUM_LENGTH):
        number, digit = divmod(number, len(_DIGITS))
        text = _DIGITS[digit] + text
    return text
