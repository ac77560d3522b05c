"""Tensors to bytes and back, held against NVIDIA's own client."""

import math
from array import array
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tritonclient.utils import deserialize_bytes_tensor, serialize_byte_tensor

from app.errors import BadUpstreamResponse
from app.triton.tensor import Column, Rows, TensorSpec, pack_texts, unpack_texts

TEXTS = st.lists(st.binary(max_size=40), max_size=8)
NUMPY = {"FP32": np.float32, "FP64": np.float64, "INT32": np.int32, "INT64": np.int64, "UINT8": np.uint8, "BOOL": np.bool_}


def unpack_rows(raw: bytes, spec: TensorSpec, shape: Sequence[int], batch: int) -> Rows:
    return Column.of(spec, shape, batch).rows(raw)


@given(TEXTS)
def test_texts_are_packed_like_tritonclient_packs_them(texts: list[bytes]) -> None:
    theirs = serialize_byte_tensor(np.array(texts, dtype=object))
    assert pack_texts(texts) == (theirs.item() if theirs.size else b"")


@given(TEXTS)
def test_texts_are_unpacked_like_tritonclient_unpacks_them(texts: list[bytes]) -> None:
    packed = pack_texts(texts)
    assert unpack_texts(packed, len(texts)) == texts == list(deserialize_bytes_tensor(packed))


@given(texts=TEXTS, raw=st.binary(max_size=60))
def test_bytes_that_are_no_texts_are_refused_and_nothing_else_happens(texts: list[bytes], raw: bytes) -> None:
    try:
        unpacked = unpack_texts(raw, len(texts))
    except BadUpstreamResponse:
        return
    assert pack_texts(unpacked) == raw


@pytest.mark.parametrize("cut", range(1, 11))
def test_texts_cut_anywhere_are_refused(cut: int) -> None:
    with pytest.raises(BadUpstreamResponse):
        unpack_texts(pack_texts([b"abc", b"d"])[:-cut], 2)


@given(st.sampled_from(list(NUMPY)), st.integers(1, 5), st.lists(st.integers(1, 4), min_size=1, max_size=2), st.randoms())
def test_numbers_are_split_into_rows_like_numpy_does(dtype: str, batch: int, dims: list[int], random: object) -> None:
    numbers = np.arange(batch * math.prod(dims)).reshape(batch, *dims).astype(NUMPY[dtype])
    rows = unpack_rows(numbers.tobytes(), TensorSpec("X", dtype, tuple(dims)), numbers.shape, batch)
    assert [list(row) for row in rows] == [row.ravel().tolist() for row in numbers]


def test_a_free_dimension_may_be_of_any_size_and_empty() -> None:
    spec = TensorSpec("SPANS", "INT32", (-1, 3))
    assert unpack_rows(array("i", range(12)).tobytes(), spec, (2, 2, 3), 2) == [array("i", range(6)), array("i", range(6, 12))]
    assert unpack_rows(b"", spec, (2, 0, 3), 2) == [array("i"), array("i")]


def test_one_text_for_each_item_is_that_text() -> None:
    spec = TensorSpec("ERROR", "BYTES", (1,))
    assert unpack_rows(pack_texts([b"", b"odd"]), spec, (2, 1), 2) == [b"", b"odd"]


WRONG = {
    "another batch": (b"\0" * 24, (2, 3)),
    "another width": (b"\0" * 8, (1, 2)),
    "another rank": (b"\0" * 12, (3,)),
    "too few bytes": (b"\0" * 8, (1, 3)),
    "too many bytes": (b"\0" * 16, (1, 3)),
    "no bytes": (b"", (1, 3)),
    "NaN": (array("f", [0, math.nan, 0]).tobytes(), (1, 3)),
    "Infinity": (array("f", [0, 0, math.inf]).tobytes(), (1, 3)),
    "infinities that cancel out": (array("f", [math.inf, -math.inf, 0]).tobytes(), (1, 3)),
}


@pytest.mark.parametrize(("raw", "shape"), WRONG.values(), ids=WRONG)
def test_an_output_that_is_not_as_declared_is_refused(raw: bytes, shape: tuple[int, ...]) -> None:
    with pytest.raises(BadUpstreamResponse):
        unpack_rows(raw, TensorSpec("SCORES", "FP32", (3,)), shape, 1)


@pytest.mark.parametrize(("number", "fits"), [(2**53 - 1, True), (1 - 2**53, True), (2**53, False), (-(2**53), False)])
def test_integers_that_javascript_would_read_wrongly_are_refused(number: int, fits: bool) -> None:
    raw, spec = array("q", [0, number]).tobytes(), TensorSpec("TOKENS", "INT64", (2,))
    if fits:
        assert unpack_rows(raw, spec, (1, 2), 1) == [array("q", [0, number])]
    else:
        with pytest.raises(BadUpstreamResponse):
            unpack_rows(raw, spec, (1, 2), 1)


def test_the_largest_numbers_are_finite() -> None:
    largest = float(np.finfo(np.float32).max)
    [row] = unpack_rows(array("f", [largest] * 1000).tobytes(), TensorSpec("X", "FP32", (1000,)), (1, 1000), 1)
    assert row[0] == largest
