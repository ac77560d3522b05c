"""Texts as they come in: BYTES that should be UTF-8."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt


def decoded(tensor: npt.NDArray[np.object_]) -> tuple[list[str], npt.NDArray[np.object_]]:
    """The texts of a `TEXT` tensor, and the `ERROR` tensor that goes with them. What can't be read counts as empty."""
    pairs = [_decoded(raw) for raw in tensor.ravel()]
    return [text for text, _ in pairs], column([error for _, error in pairs], np.object_)


def _decoded(raw: bytes) -> tuple[str, bytes]:
    try:
        return raw.decode(), b""
    except UnicodeDecodeError:
        return "", b"invalid_utf8"


def column(values: Sequence[Any], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """One value per item, in the shape [batch, 1]."""
    return np.array(values, dtype).reshape(-1, 1)


def bucket(length: int, smallest: int = 16) -> int:
    """The next power of two: requests are batched only with those of the same shape, so few shapes make full batches."""
    return max(smallest, 1 << (length - 1).bit_length())


def padded(rows: Iterable[Sequence[float]], width: int, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Rows of any length as one grid, filled up with zeros; 0 is also the id of every tokenizer's `[PAD]` here."""
    rows = list(rows)
    grid = np.zeros((len(rows), width), dtype)
    for row, values in zip(grid, rows, strict=True):
        row[: len(values)] = values
    return grid
