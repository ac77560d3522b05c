"""Numbers to bytes and back, held against numpy and the datatypes that Triton's own clients know."""

import math
import warnings
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tritonclient.utils import triton_to_np_dtype

from app.triton.datatype import DATATYPES, NumbersUnfit, is_finite, pack_numbers, unpack_numbers

INTEGERS = [name for name in DATATYPES if "INT" in name]
FLOATS = ["FP16", "BF16", "FP32", "FP64"]
WIDTHS = {"FP16": 16, "BF16": 32, "FP32": 32, "FP64": 64}


def of(name: str) -> st.SearchStrategy[Any]:
    if name == "BOOL":
        return st.booleans()
    if name in INTEGERS:
        limits = np.iinfo(triton_to_np_dtype(name))
        return st.integers(int(limits.min), int(limits.max))
    return st.floats(width=WIDTHS[name], allow_nan=False, allow_infinity=False)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", DATATYPES)
@settings(max_examples=25)
@given(data=st.data())
def test_numbers_are_packed_as_numpy_packs_them_and_come_back(name: str, data: st.DataObject) -> None:
    numbers = data.draw(st.lists(of(name), max_size=20))
    raw = pack_numbers(name, numbers)
    if name == "BF16":  # cut, not rounded
        theirs = (np.array(numbers, np.float32).view(np.uint32) >> 16).astype(np.uint16)
    else:
        theirs = np.array(numbers, triton_to_np_dtype(name))
    assert raw == theirs.tobytes()
    assert is_finite(name, raw)
    back = np.frombuffer(raw, triton_to_np_dtype(name))
    assert unpack_numbers(name, raw) == (back.astype(np.float64) if name == "BF16" else back).tolist()
    assert pack_numbers(name, unpack_numbers(name, raw)) == raw


@pytest.mark.parametrize("name", DATATYPES)
def test_more_numbers_than_are_converted_at_once_keep_their_order(name: str) -> None:
    numbers = [bool(at % 3) if name == "BOOL" else at % 100 for at in range(40_000)]
    assert unpack_numbers(name, pack_numbers(name, numbers)) == numbers


@pytest.mark.parametrize("name", FLOATS)
@given(raw=st.binary(max_size=64))
def test_what_is_not_finite_is_found_in_whatever_bytes(name: str, raw: bytes) -> None:
    raw = raw[: len(raw) // 8 * 8]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        numbers = np.frombuffer(raw, triton_to_np_dtype(name)).astype(np.float64)
    assert is_finite(name, raw) == all(map(math.isfinite, numbers))


@pytest.mark.parametrize("name", FLOATS)
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_one_bad_number_among_many_is_found(name: str, bad: float) -> None:
    dtype = ml_dtypes.bfloat16 if name == "BF16" else triton_to_np_dtype(name)
    assert not is_finite(name, np.array([0.0] * 100 + [bad] + [1.0] * 100, dtype).tobytes())


@pytest.mark.parametrize(
    ("name", "numbers"),
    [
        *((name, [1.0]) for name in (*INTEGERS, "BOOL")),
        *((name, [True]) for name in DATATYPES if name != "BOOL"),
        *((name, ["1"]) for name in DATATYPES),
        *((name, [None]) for name in DATATYPES),
        *((name, [[1]]) for name in DATATYPES),
        *((name, [-1]) for name in DATATYPES if name.startswith("U")),
        *((name, [2**64]) for name in INTEGERS),
        ("UINT8", [256]),
        ("INT8", [128]),
        ("FP16", [65_520.0]),
        ("BF16", [1e39]),
        ("FP32", [1e39]),
        *((name, [float("inf")]) for name in FLOATS),
        *((name, [10**400]) for name in FLOATS),
        ("FP16", [65_520]),
        ("BOOL", [1]),
    ],
)
def test_what_is_no_number_of_the_datatype_is_refused(name: str, numbers: list[Any]) -> None:
    with pytest.raises(NumbersUnfit):
        pack_numbers(name, numbers)
