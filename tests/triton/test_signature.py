"""Requests and answers, held against what a model declares."""

from array import array
from collections.abc import Callable

import pytest
from tritonclient.grpc import service_pb2 as pb

from app.errors import BadUpstreamResponse, InvalidInput
from app.triton.ensemble import Ensemble
from app.triton.query import Tensors, probing
from app.triton.signature import Signature
from app.triton.tensor import Tensor, TensorSpec
from tests.fakes.triton import seen

IDS, MASK = TensorSpec("ids", "INT64", (-1,)), TensorSpec("mask", "INT32", (-1,), optional=True)
VECTOR, NAME = TensorSpec("vector", "FP32", (2,)), TensorSpec("name", "BYTES", (1,))
BATCHED = Signature(4, (IDS, MASK), (VECTOR, NAME), ("1",))
PLAIN = Signature(0, (TensorSpec("ids", "INT64", (2,)),), (TensorSpec("vector", "FP32", (2, -1)),), ("1",))


def ids(*shape: int, name: str = "ids", dtype: str = "INT64") -> Tensor:
    return Tensor(name, dtype, shape, b"")


FITTING = {
    "one item": (BATCHED, [ids(1, 3)], ()),
    "a whole batch": (BATCHED, [ids(4, 1)], ("vector",)),
    "with what is optional": (BATCHED, [ids(2, 3), ids(2, 3, name="mask", dtype="INT32")], ("name", "vector")),
    "without a batch": (PLAIN, [ids(2)], ()),
}


@pytest.mark.parametrize(("signature", "inputs", "outputs"), FITTING.values(), ids=FITTING)
def test_a_request_that_fits_is_let_pass(signature: Signature, inputs: list[Tensor], outputs: tuple[str, ...]) -> None:
    signature.check(inputs, outputs)


UNFIT = {
    "a batch that is too large": (BATCHED, [ids(5, 1)], (), "/inputs/0/shape", "batch_too_large"),
    "an unknown input": (BATCHED, [ids(1, 1), ids(1, 1, name="odd")], (), "/inputs/1/name", "unknown_tensor"),
    "an input twice": (BATCHED, [ids(1, 1), ids(1, 1)], (), "/inputs", "repeated_tensor"),
    "an input missing": (BATCHED, [ids(1, 1, name="mask", dtype="INT32")], (), "/inputs", "missing_tensor"),
    "another datatype": (BATCHED, [ids(1, 1, dtype="INT32")], (), "/inputs/0/datatype", "wrong_datatype"),
    "no batch dimension": (BATCHED, [ids(3)], (), "/inputs/0/shape", "wrong_shape"),
    "a dimension more": (BATCHED, [ids(1, 1, 1)], (), "/inputs/0/shape", "wrong_shape"),
    "batches that differ": (
        BATCHED,
        [ids(1, 1), ids(2, 1, name="mask", dtype="INT32")],
        (),
        "/inputs/1/shape",
        "wrong_shape",
    ),
    "a batch where there is none": (PLAIN, [ids(1, 2)], (), "/inputs/0/shape", "wrong_shape"),
    "another size": (PLAIN, [ids(3)], (), "/inputs/0/shape", "wrong_shape"),
    "an unknown output": (BATCHED, [ids(1, 1)], ("vector", "odd"), "/outputs/1/name", "unknown_tensor"),
    "an output twice": (BATCHED, [ids(1, 1)], ("name", "name"), "/outputs/1/name", "repeated_tensor"),
}


@pytest.mark.parametrize(("signature", "inputs", "outputs", "pointer", "code"), UNFIT.values(), ids=UNFIT)
def test_a_request_that_does_not_fit_is_pointed_to(
    signature: Signature, inputs: list[Tensor], outputs: tuple[str, ...], pointer: str, code: str
) -> None:
    with pytest.raises(InvalidInput) as refused:
        signature.check(inputs, outputs)
    assert (pointer, code) in [(flaw.pointer, flaw.code) for flaw in refused.value.flaws]
    assert "odd" not in str([flaw.detail for flaw in refused.value.flaws])


def answer() -> pb.ModelInferResponse:
    response = pb.ModelInferResponse(raw_output_contents=[b"\1\0\0\0a\1\0\0\0b", array("f", [1, 2, 3, 4]).tobytes()])
    response.outputs.add(name="name", datatype="BYTES", shape=(2, 1))
    response.outputs.add(name="vector", datatype="FP32", shape=(2, 2))
    return response


def test_outputs_are_found_by_their_names_whatever_their_order() -> None:
    vector, name = BATCHED.read(seen(answer()), ("vector", "name"), 2)
    assert (vector.name, vector.shape, vector.raw) == ("vector", (2, 2), array("f", [1, 2, 3, 4]).tobytes())
    assert (name.name, list(name.elements)) == ("name", [b"a", b"b"])


def raw(at: int, content: bytes) -> Callable[[pb.ModelInferResponse], None]:
    return lambda response: response.raw_output_contents.__setitem__(at, content)


def shaped(at: int, *shape: int) -> Callable[[pb.ModelInferResponse], None]:
    return lambda response: response.outputs[at].shape.__setitem__(slice(None), shape)


BENT: dict[str, Callable[[pb.ModelInferResponse], object]] = {
    "a content less": lambda response: response.raw_output_contents.pop(),
    "an output less": lambda response: (response.outputs.pop(), response.raw_output_contents.pop()),
    "another datatype": lambda response: setattr(response.outputs[1], "datatype", "INT32"),
    "a batch more": shaped(1, 3, 2),
    "another size": shaped(1, 2, 3),
    "a shape below 0": shaped(1, -2, -2),
    "no bytes": raw(1, b""),
    "more bytes": raw(1, bytes(20)),
    "a number that is none": raw(1, array("f", [1, 2, float("nan"), 4]).tobytes()),
    "a text that is cut": raw(0, b"\1\0\0\0a\2\0\0\0b"),
}


@pytest.mark.parametrize("bend", BENT.values(), ids=BENT)
def test_an_answer_that_is_not_what_was_declared_is_not_believed(bend: Callable[[pb.ModelInferResponse], object]) -> None:
    response = answer()
    bend(response)
    with pytest.raises(BadUpstreamResponse):
        BATCHED.read(seen(response), ("vector", "name"), 2)


def test_a_request_is_what_the_protocol_says() -> None:
    ensemble = Ensemble("ens", "", 4, {}, {}, signature=BATCHED)
    query = Tensors(ensemble, [Tensor("ids", "INT64", (2, 1), b"x" * 16)], ("name",), "3")
    request = pb.ModelInferRequest.FromString(query.request("r1", 1500, 2))
    assert (request.model_name, request.model_version, request.id, query.size) == ("ens", "3", "r1", 2)
    assert [(tensor.name, tensor.datatype, list(tensor.shape)) for tensor in request.inputs] == [("ids", "INT64", [2, 1])]
    assert [output.name for output in request.outputs] == ["name"]
    assert list(request.raw_input_contents) == [b"x" * 16]
    assert request.parameters["timeout"].int64_param == 1500
    assert request.parameters["priority"].uint64_param == 2


def test_a_model_of_tensors_is_probed_with_as_little_as_it_takes() -> None:
    inputs = (IDS, MASK, TensorSpec("text", "BYTES", (2,)))
    ensemble = Ensemble("ens", "", 4, {"ids": IDS}, {}, signature=Signature(4, inputs, (VECTOR,), ("1",)))
    request = pb.ModelInferRequest.FromString(probing(ensemble, "hi").request("probe", 1, 0))
    assert [(tensor.name, list(tensor.shape)) for tensor in request.inputs] == [("ids", [1, 1]), ("text", [1, 2])]
    assert list(request.raw_input_contents) == [bytes(8), b"\2\0\0\0hi\2\0\0\0hi"]
