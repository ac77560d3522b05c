"""Tensors to bytes and back, as Triton's raw contents carry them. Pure functions; little-endian throughout.

A BYTES tensor is, for each element, a uint32 length and the bytes, with no terminator (Triton's
`docs/protocol/extension_binary_data.md`). Every other datatype is its plain array.
"""

import struct
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import isfinite, prod
from typing import Any

from app.errors import BadUpstreamResponse

_LENGTH = struct.Struct("<I")
_SAFE = 2**53 - 1
"""JavaScript's `Number.MAX_SAFE_INTEGER`."""
TYPECODES = {"FP32": "f", "FP64": "d", "INT32": "i", "INT64": "q", "UINT8": "B", "BOOL": "b"}
"""The datatypes that a role can have, beside BYTES, and their codes in `array`."""


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """A tensor of a model: `dims` are those of one item, without the batch dimension; -1 is free."""

    name: str
    dtype: str
    dims: tuple[int, ...]
    optional: bool = False


@dataclass(frozen=True, slots=True)
class Tensor:
    """One that came or goes. `elements` are those of BYTES, which `raw` holds with their lengths."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    raw: bytes = field(repr=False)
    elements: Sequence[bytes] = field(default=(), repr=False)


Rows = list[Any]
"""One value for each item of a batch: an `array` of numbers, flat, or a byte string where the datatype is BYTES."""


def pack_texts(texts: Sequence[bytes]) -> bytes:
    pack = _LENGTH.pack
    return b"".join([part for text in texts for part in (pack(len(text)), text)])


def take_texts(raw: bytes, at: int, count: int) -> tuple[list[bytes], int] | None:
    """The next `count` elements of a BYTES tensor, and where they end; None where there are not so many."""
    texts: list[bytes] = []
    head, unpack = _LENGTH.size, _LENGTH.unpack_from
    try:
        for _ in range(count):
            (length,) = unpack(raw, at)
            at += head + length
            texts.append(raw[at - length : at])
    except struct.error:
        return None
    return (texts, at) if at <= len(raw) else None


def unpack_texts(raw: bytes, count: int) -> list[bytes]:
    """The `count` elements of a BYTES tensor of an answer; raises `BadUpstreamResponse` unless they fill `raw` exactly."""
    taken = take_texts(raw, 0, count)
    if taken is None or taken[1] != len(raw):
        raise BadUpstreamResponse("a BYTES tensor of the answer is not well-formed")
    return taken[0]


@dataclass(frozen=True, slots=True)
class Column:
    """How the raw contents of one output are split into a row for each item."""

    code: str
    """Of `array`; none for BYTES."""
    batch: int
    width: int
    """How many values each row has."""
    size: int
    """In bytes; of BYTES, whatever it is."""
    speakable: Callable[["array[Any]"], bool] | None
    """Whether everybody reads the same where its numbers are said in JSON; None where that is sure."""

    @classmethod
    def of(cls, spec: TensorSpec, shape: Sequence[int], batch: int) -> "Column":
        """Raises `BadUpstreamResponse` where the shape is not `[batch, *dims]`."""
        if not fits(shape, (batch, *spec.dims)):
            raise BadUpstreamResponse("an output of the answer has another shape than was asked for")
        width = prod(shape[1:])
        code = TYPECODES.get(spec.dtype, "")
        return cls(code, batch, width, batch * width * array(code).itemsize if code else 0, _SPEAKABLE.get(code))

    def rows(self, raw: bytes) -> Rows:
        """Raises `BadUpstreamResponse` where the bytes do not fill the shape, and where a number can't be said in JSON so that
        everybody reads the same.
        """
        batch, width = self.batch, self.width
        if not self.code:
            texts = unpack_texts(raw, batch * width)
            return texts if width == 1 else [b"".join(texts[at : at + width]) for at in range(0, batch * width, width)]
        if len(raw) != self.size:
            raise BadUpstreamResponse("an output of the answer has more or fewer bytes than its shape")
        numbers = array(self.code, raw)
        if self.speakable is not None and not self.speakable(numbers):
            raise BadUpstreamResponse(
                "an output of the answer holds numbers that are not finite, or beyond JavaScript's integers"
            )
        if batch == 1:
            return [numbers]
        return [numbers[at : at + width] for at in range(0, batch * width, width)] if width else [numbers[:0]] * batch


def fits(shape: Sequence[int], declared: tuple[int, ...]) -> bool:
    """-1 fits any size that is not negative."""
    return tuple(shape) == declared or (
        len(shape) == len(declared)
        and all(got == want or (want == -1 and got >= 0) for got, want in zip(shape, declared, strict=True))
    )


def _finite_singles(numbers: "array[Any]") -> bool:
    return isfinite(sum(numbers))  # doubles can't overflow by so few fp32, so that one bad number shows, and only that


def _finite_doubles(numbers: "array[Any]") -> bool:
    return all(map(isfinite, numbers))


def _safe_integers(numbers: "array[Any]") -> bool:
    return not numbers or (max(numbers) <= _SAFE and min(numbers) >= -_SAFE)


_SPEAKABLE: dict[str, Callable[["array[Any]"], bool]] = {"f": _finite_singles, "d": _finite_doubles, "q": _safe_integers}
"""By the code in `array`."""
