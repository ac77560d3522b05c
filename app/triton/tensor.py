"""Tensors to bytes and back, as Triton's raw contents carry them. Pure functions; little-endian throughout.

A BYTES tensor is, for each element, a uint32 length and the bytes, with no terminator (Triton's
`docs/protocol/extension_binary_data.md`). Every other datatype is its plain array.
"""

import struct
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite, prod
from typing import Any

from app.errors import BadUpstreamResponse

_LENGTH = struct.Struct("<I")
TYPECODES = {"FP32": "f", "FP64": "d", "INT32": "i", "INT64": "q", "UINT8": "B", "BOOL": "b"}
"""The datatypes that a role can have, beside BYTES, and their codes in `array`."""


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """A tensor of a model: `dims` are those of one item, without the batch dimension; -1 is free."""

    name: str
    dtype: str
    dims: tuple[int, ...]


Rows = list[Any]
"""One value for each item of a batch: an `array` of numbers, flat, or a byte string where the datatype is BYTES."""


def pack_texts(texts: Sequence[bytes]) -> bytes:
    pack = _LENGTH.pack
    return b"".join([part for text in texts for part in (pack(len(text)), text)])


def unpack_texts(raw: bytes, count: int) -> list[bytes]:
    """The `count` elements of a BYTES tensor; raises `BadUpstreamResponse` unless they fill `raw` exactly."""
    texts: list[bytes] = []
    at = 0
    try:
        for _ in range(count):
            (length,) = _LENGTH.unpack_from(raw, at)
            at += _LENGTH.size
            texts.append(raw[at : at + length])
            at += length
    except struct.error:
        at = -1
    if at != len(raw):
        raise BadUpstreamResponse("a BYTES tensor of the answer is not well-formed")
    return texts


def unpack_rows(raw: bytes, spec: TensorSpec, shape: Sequence[int], batch: int) -> Rows:
    """Split the raw contents of one output into a row for each item.

    Raises `BadUpstreamResponse` where the shape is not `[batch, *dims]`, where the bytes do not fill it, and where a number is
    not finite.
    """
    if not _fits(shape, (batch, *spec.dims)):
        raise BadUpstreamResponse("an output of the answer has another shape than was asked for")
    width = prod(shape[1:])
    if spec.dtype == "BYTES":
        texts = unpack_texts(raw, batch * width)
        return texts if width == 1 else [b"".join(texts[at : at + width]) for at in range(0, batch * width, width)]
    numbers: array[Any] = array(TYPECODES[spec.dtype])
    if len(raw) != batch * width * numbers.itemsize:
        raise BadUpstreamResponse("an output of the answer has more or fewer bytes than its shape")
    numbers.frombytes(raw)
    if not _finite(numbers):
        raise BadUpstreamResponse("an output of the answer holds numbers that are not finite")
    return [numbers[at : at + width] for at in range(0, batch * width, width)] if width else [numbers[:0] for _ in range(batch)]


def _fits(shape: Sequence[int], declared: tuple[int, ...]) -> bool:
    """-1 fits any size that is not negative."""
    return tuple(shape) == declared or (
        len(shape) == len(declared)
        and all(got == want or (want == -1 and got >= 0) for got, want in zip(shape, declared, strict=True))
    )


def _finite(numbers: "array[Any]") -> bool:
    if numbers.typecode == "f":
        return isfinite(sum(numbers))  # doubles can't overflow by so few fp32, so that one bad number shows, and only that
    return numbers.typecode != "d" or all(map(isfinite, numbers))
