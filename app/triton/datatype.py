"""The datatypes of tensors, and their numbers to bytes and back. Pure functions; little-endian throughout.

BYTES is none of them: its elements have lengths of their own (`tensor.py`).
"""

import struct
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any


class NumbersUnfit(ValueError):
    """These are no numbers of the datatype."""


@dataclass(frozen=True, slots=True)
class Datatype:
    """`code` is that of `array` and `struct`. `types` are those that JSON's values must have."""

    size: int
    code: str
    types: frozenset[type]
    suspects: bytes = b""
    """The highest bytes of all numbers that are not finite, and of few others."""


_INTEGERS, _FLOATS = frozenset({int}), frozenset({int, float})
DATATYPES = {
    "BOOL": Datatype(1, "B", frozenset({bool})),
    "UINT8": Datatype(1, "B", _INTEGERS),
    "UINT16": Datatype(2, "H", _INTEGERS),
    "UINT32": Datatype(4, "I", _INTEGERS),
    "UINT64": Datatype(8, "Q", _INTEGERS),
    "INT8": Datatype(1, "b", _INTEGERS),
    "INT16": Datatype(2, "h", _INTEGERS),
    "INT32": Datatype(4, "i", _INTEGERS),
    "INT64": Datatype(8, "q", _INTEGERS),
    "FP16": Datatype(2, "e", _FLOATS, b"\x7c\x7d\x7e\x7f\xfc\xfd\xfe\xff"),
    "BF16": Datatype(2, "f", _FLOATS, b"\x7f\xff"),
    "FP32": Datatype(4, "f", _FLOATS, b"\x7f\xff"),
    "FP64": Datatype(8, "d", _FLOATS, b"\x7f\xff"),
}


def pack_numbers(name: str, numbers: Sequence[Any]) -> bytes:
    """Raises `NumbersUnfit` where one is of another type than the datatype's, or beyond its range."""
    datatype = DATATYPES[name]
    if not set(map(type, numbers)) <= datatype.types:
        raise NumbersUnfit(f"{name} is written as {_words(datatype)}")
    try:
        raw = struct.pack(f"<{len(numbers)}e", *numbers) if name == "FP16" else array(datatype.code, numbers).tobytes()
    except (OverflowError, struct.error):  # the latter of a whole number
        raise NumbersUnfit(f"a number is beyond the range of {name}") from None
    if datatype.suspects and not is_finite("FP32" if name == "BF16" else name, raw):  # JSON's 1e999 was read as infinity
        raise NumbersUnfit(f"a number is beyond the range of {name}")
    if name == "BF16":  # the upper halves, as Triton's own clients cut them
        narrow = bytearray(len(raw) // 2)
        narrow[0::2], narrow[1::2] = raw[2::4], raw[3::4]
        return bytes(narrow)
    return raw


def unpack_numbers(name: str, raw: bytes) -> list[Any]:
    """What `tolist` of an array would give: numbers, or booleans."""
    if name == "BOOL":
        return list(map(bool, raw))
    if name == "FP16":
        return list(struct.unpack(f"<{len(raw) // 2}e", raw))
    if name == "BF16":
        wide = bytearray(2 * len(raw))
        wide[2::4], wide[3::4] = raw[0::2], raw[1::2]
        raw = bytes(wide)
    numbers: array[Any] = array(DATATYPES[name].code)
    numbers.frombytes(raw)
    return numbers.tolist()


def is_finite(name: str, raw: bytes) -> bool:
    """Whether all are finite numbers. Nearly always their highest bytes alone tell, which costs a nanosecond for each."""
    datatype = DATATYPES[name]
    highest = raw[datatype.size - 1 :: datatype.size]
    if not any(suspect in highest for suspect in datatype.suspects):
        return True
    return all(map(isfinite, unpack_numbers(name, raw)))


def _words(datatype: Datatype) -> str:
    if datatype.types == frozenset({bool}):
        return "true and false"
    return "whole numbers" if datatype.types == _INTEGERS else "numbers"
