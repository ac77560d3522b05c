"""The bytes of `/v2`, held against those of NVIDIA's own client."""

import json
from collections.abc import Coroutine
from typing import Any, TypeVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tritonclient.http import InferInput, InferRequestedOutput, InferResult
from tritonclient.http._utils import _get_inference_request
from tritonclient.utils import triton_to_np_dtype

from app.api.inference_schemas import InferRequest
from app.api.strict_json import parse
from app.api.tensors import parted, read_request, write_answer
from app.errors import InvalidInput, Malformed, Refusal, TooLarge
from app.triton.datatype import DATATYPES, unpack_numbers
from app.triton.tensor import Tensor, unpack_texts
from tests.gateway.problems import CANARY

Result = TypeVar("Result")

MOST = 2**20
SHAPES = st.lists(st.integers(1, 4), min_size=1, max_size=3)
ELEMENTS = {
    "BOOL": st.booleans(),
    "BYTES": st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
    **{name: st.floats(-100, 100, width=16) for name in ("FP16", "FP32", "FP64")},
    "BF16": st.integers(-100, 100).map(float),
    **{name: st.integers(0 if name.startswith("U") else -100, 100) for name in DATATYPES if "INT" in name},
}


@st.composite
def arrays(draw: st.DrawFn) -> tuple[str, Any]:
    dtype = draw(st.sampled_from(sorted(ELEMENTS)))
    shape = draw(SHAPES)
    count = int(np.prod(shape))
    elements = draw(st.lists(ELEMENTS[dtype], min_size=count, max_size=count))
    if dtype == "BYTES":
        elements = [str(element).encode() for element in elements]
    return dtype, np.array(elements, dtype=triton_to_np_dtype(dtype)).reshape(shape)


def asked(array: Any, dtype: str, name: str, *, binary: bool) -> InferInput:
    given_input = InferInput(name, list(array.shape), dtype)
    given_input.set_data_from_numpy(array, binary_data=binary)
    return given_input


def read(body: bytes, size: int | None) -> tuple[InferRequest, list[Tensor]]:
    text, rest = parted(body, size)
    return finished(read_request(parse(bytes(text)), rest, MOST))


def written(*given: Any) -> tuple[bytes, int | None]:
    pieces, size = finished(write_answer(*given))
    return b"".join(pieces), size


def finished(work: Coroutine[Any, Any, Result]) -> Result:
    """What comes of it, whoever else might have had a turn."""
    while True:
        try:
            work.send(None)
        except StopIteration as end:
            result: Result = end.value
            return result


def sent(inputs: list[InferInput], **options: Any) -> tuple[bytes, int | None]:
    defaults = {
        "request_id": "",
        "outputs": None,
        "sequence_id": 0,
        "sequence_start": False,
        "sequence_end": False,
        "priority": 0,
        "timeout": None,
        "custom_parameters": None,
    }
    body, size = _get_inference_request(inputs=inputs, **{**defaults, **options})
    return bytes(body), size


@given(tensors=st.lists(st.tuples(arrays(), st.booleans()), min_size=1, max_size=4))
def test_what_their_client_sends_is_read_to_the_bit(tensors: list[tuple[tuple[str, Any], bool]]) -> None:
    inputs = [
        asked(array, dtype, f"t{at}", binary=binary or dtype == "BF16") for at, ((dtype, array), binary) in enumerate(tensors)
    ]
    body, size = sent(inputs, request_id="r", outputs=[InferRequestedOutput("o"), InferRequestedOutput("p", False)], timeout=7)
    request, got = read(body, size)
    assert (request.id, request.parameters.timeout) == ("r", 7)
    assert [(output.name, output.parameters.binary_data) for output in request.outputs] == [("o", True), ("p", False)]
    for tensor, ((dtype, array), _) in zip(got, tensors, strict=True):
        assert (tensor.dtype, tensor.shape) == (dtype, array.shape)
        if dtype == "BYTES":
            assert list(tensor.elements) == list(array.ravel()) == unpack_texts(tensor.raw, array.size)
        else:
            assert tensor.raw == array.tobytes()


@given(tensors=st.lists(st.tuples(arrays(), st.booleans()), min_size=1, max_size=4))
def test_what_is_written_is_read_by_their_client_to_the_bit(tensors: list[tuple[tuple[str, Any], bool]]) -> None:
    outputs = [
        read(*sent([asked(array, dtype, f"t{at}", binary=True)]))[1][0] for at, ((dtype, array), _) in enumerate(tensors)
    ]
    body, size = written({"model_name": "m"}, outputs, [binary for _, binary in tensors])
    assert (size is not None) == any(binary for _, binary in tensors)
    result = InferResult.from_response_body(body, header_length=size)
    for at, ((dtype, array), binary) in enumerate(tensors):
        got = result.as_numpy(f"t{at}")
        if dtype == "BYTES" and not binary:
            assert [text.encode() for text in got.ravel()] == list(array.ravel())
        else:
            assert (got == array).all()
        assert got.shape == array.shape


def test_a_long_output_is_written_in_slices_that_join_to_one_list() -> None:
    numbers = np.arange(50_000, dtype=np.int32)
    texts = [str(number).encode() for number in range(20_000)]
    outputs = [Tensor("n", "INT32", (50_000,), numbers.tobytes()), Tensor("t", "BYTES", (20_000,), b"", texts)]
    body, size = written({"model_name": "m"}, outputs, [False, False])
    assert size is None
    assert [output["data"] for output in json.loads(body)["outputs"]] == [numbers.tolist(), [str(n) for n in range(20_000)]]


@pytest.mark.parametrize("nested", [[1, 2, 3, 4], [[1, 2], [3, 4]], [[[1], [2]], [[3], [4]]]])
def test_data_may_be_nested_as_its_shape_is_or_flat(nested: list[Any]) -> None:
    _, (tensor,) = read(request(data=nested), None)
    assert unpack_numbers("INT32", tensor.raw) == [1, 2, 3, 4]


def request(**changes: Any) -> bytes:
    tensor = {"name": "t", "shape": [2, 2], "datatype": "INT32", "data": [1, 2, 3, 4], **changes}
    return json.dumps({"inputs": [{name: value for name, value in tensor.items() if value is not None}]}).encode()


def binary(size: int, **changes: Any) -> bytes:
    return request(data=None, parameters={"binary_data_size": size}, **changes)


UNFIT = {
    "an element less": (request(data=[1, 2, 3]), b"", InvalidInput, "/inputs/0/data"),
    "an element more": (request(data=[1, 2, 3, 4, 5]), b"", InvalidInput, "/inputs/0/data"),
    "data that is no list": (request(data=CANARY), b"", InvalidInput, "/inputs/0/data"),
    "ragged data": (request(data=[[1, 2], 3]), b"", InvalidInput, "/inputs/0/data"),
    "a text for a number": (request(data=[1, 2, 3, CANARY]), b"", InvalidInput, "/inputs/0/data"),
    "a number for a text": (request(datatype="BYTES"), b"", InvalidInput, "/inputs/0/data"),
    "a number beyond its range": (request(data=[1, 2, 3, 2**31]), b"", InvalidInput, "/inputs/0/data"),
    "a huge number": (request(data=[1, 2, 3, 10**400]), b"", InvalidInput, "/inputs/0/data"),
    "an unknown datatype": (request(datatype=CANARY), b"", InvalidInput, "/inputs/0/datatype"),
    "a shape of nothing": (request(shape=[2, 0]), b"", InvalidInput, "/inputs/0/shape/1"),
    "a shape below 0": (request(shape=[2, -2]), b"", InvalidInput, "/inputs/0/shape/1"),
    "a shape that is true": (request(shape=[2, True]), b"", InvalidInput, "/inputs/0/shape/1"),
    "no shape": (request(shape=[]), b"", InvalidInput, "/inputs/0/shape"),
    "a shape beyond memory": (request(shape=[2**31 - 1] * 16), b"", TooLarge, None),
    "a shape of too many bytes": (request(shape=[MOST // 4 + 1]), b"", TooLarge, None),
    "a shape of just so many": (request(shape=[MOST // 4]), b"", InvalidInput, "/inputs/0/data"),
    "a shape of texts beyond memory": (request(shape=[2**31 - 1] * 16, datatype="BYTES"), b"", InvalidInput, "/inputs/0/data"),
    "shared memory": (request(parameters={"shared_memory_region": "r"}), b"", InvalidInput, "/inputs/0/parameters"),
    "neither data nor bytes": (request(data=None), b"", InvalidInput, "/inputs/0"),
    "both data and bytes": (request(parameters={"binary_data_size": 16}), bytes(16), InvalidInput, "/inputs/0"),
    "no inputs": (b'{"inputs": []}', b"", InvalidInput, "/inputs"),
    "bytes that fill another shape": (binary(12), bytes(12), Malformed, "/inputs/0"),
    "texts that are cut": (binary(9, datatype="BYTES", shape=[1]), b"\6\0\0\0abcde", Malformed, "/inputs/0"),
    "texts of another count": (binary(10, datatype="BYTES", shape=[3]), b"\1\0\0\0a\1\0\0\0b", Malformed, "/inputs/0"),
    "bytes that are not there": (binary(16), bytes(15), Malformed, None),
    "bytes after the last tensor": (binary(16), bytes(17), Malformed, None),
    "bytes without a tensor": (request(), b"x", Malformed, None),
    "a size beyond the body": (binary(10**18), bytes(16), Malformed, None),
    "broken JSON": (b'{"inputs": [', b"", Malformed, None),
}


@pytest.mark.parametrize(("text", "rest", "kind", "pointer"), UNFIT.values(), ids=UNFIT)
def test_what_is_no_request_is_refused_and_pointed_to(
    text: bytes, rest: bytes, kind: type[Refusal], pointer: str | None
) -> None:
    with pytest.raises(kind) as refused:
        read(text + rest, len(text))
    assert CANARY not in str(refused.value.flaws)
    assert pointer is None or pointer in [flaw.pointer for flaw in refused.value.flaws]


def test_a_header_that_is_longer_than_the_body_is_refused() -> None:
    with pytest.raises(Malformed):
        read(request(), 10_000)


def test_bytes_that_are_no_text_can_not_be_written_as_json() -> None:
    tensor = Tensor("t", "BYTES", (1,), b"", [b"\xff"])
    with pytest.raises(InvalidInput) as refused:
        written({}, [tensor], [False])
    assert refused.value.flaws[0].pointer == "/outputs/0"


@given(tail=st.binary(max_size=40), size=st.integers(0, 200), shape=SHAPES, dtype=st.sampled_from(sorted(ELEMENTS)))
def test_whatever_follows_the_json_is_read_or_refused(tail: bytes, size: int, shape: list[int], dtype: str) -> None:
    text = binary(len(tail), shape=shape, datatype=dtype)
    try:
        _, (tensor,) = read(text + tail, size if size > 100 else len(text))
    except Refusal:
        return
    assert tensor.raw == tail


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["data", "shape", "name", "id"]), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(
    values=st.dictionaries(st.sampled_from(["name", "shape", "datatype", "data", "parameters"]), JSON, max_size=5), more=JSON
)
def test_whatever_the_json_is_it_is_read_or_refused(values: dict[str, Any], more: Any) -> None:
    for document in ({"inputs": [values]}, {"inputs": more}, {"inputs": [values], "outputs": more}, {"parameters": more}, more):
        body = json.dumps(document).encode("utf-8", "surrogatepass")
        try:
            request, _ = read(body, None)
        except Refusal:
            continue
        assert isinstance(request, InferRequest)
