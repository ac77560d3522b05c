"""The request that is prepared once, and the answer that is trusted only once it is checked."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tritonclient.grpc import service_pb2 as pb

from app.errors import BadUpstreamResponse
from app.triton.answer import read_answer
from app.triton.ensemble import Ensemble
from app.triton.tensor import TensorSpec, pack_texts
from tests.fakes.triton import put, seen


def an_ensemble() -> Ensemble:
    text = TensorSpec("TEXT", "BYTES", (1,))
    outputs = {"scores": TensorSpec("SCORES", "FP32", (3,)), "tokens": TensorSpec("TOKENS", "INT32", (1,))}
    return Ensemble("ens", "", 8, {"text": text}, outputs)


def expected(texts: list[bytes], outputs: list[str], request_id: str, timeout: int, priority: int) -> pb.ModelInferRequest:
    """As NVIDIA's messages are filled in by hand, at once."""
    request = pb.ModelInferRequest(model_name="ens", id=request_id, raw_input_contents=[pack_texts(texts)])
    request.inputs.add(name="TEXT", datatype="BYTES", shape=[len(texts), 1])
    for name in outputs:
        request.outputs.add(name=name)
    request.parameters["timeout"].int64_param = timeout
    request.parameters["priority"].uint64_param = priority
    return request


@given(
    st.lists(st.binary(max_size=20), min_size=1, max_size=8),
    st.sampled_from([("scores",), ("tokens",), ("scores", "tokens"), ("tokens", "scores")]),
    st.text("abc-9", max_size=24),
    st.integers(1, 2**40),
    st.integers(1, 9),
)
def test_a_prepared_request_is_the_message_that_it_stands_for(
    texts: list[bytes], roles: tuple[str, ...], request_id: str, timeout: int, priority: int
) -> None:
    ensemble = an_ensemble()
    for _ in range(2):  # made, and then made from what was kept
        parsed = pb.ModelInferRequest.FromString(ensemble.request(texts, roles, request_id, timeout, priority))
        assert parsed == expected(texts, [role.upper() for role in roles], request_id, timeout, priority)


def test_what_is_kept_of_one_request_is_not_in_the_next() -> None:
    ensemble = an_ensemble()
    ensemble.request([b"first"], ("scores", "tokens"), "a", 1, 1)
    parsed = pb.ModelInferRequest.FromString(ensemble.request([b"second"], ("scores",), "b", 2, 2))
    assert parsed == expected([b"second"], ["SCORES"], "b", 2, 2)


def test_ensembles_are_equal_when_they_can_serve_for_each_other() -> None:
    used, fresh = an_ensemble(), an_ensemble()
    used.request([b"x"], ("scores",), "a", 1, 1)
    assert used == fresh
    assert Ensemble("ens", "", 16, used.inputs, used.outputs) != fresh


def an_answer() -> pb.ModelInferResponse:
    response = pb.ModelInferResponse()
    put(response, "TOKENS", "INT32", (1, 1), (7).to_bytes(4, "little"))
    put(response, "SCORES", "FP32", (1, 3), b"\0" * 12)
    return response


def test_outputs_are_found_by_name_whatever_their_order() -> None:
    rows = an_ensemble().read(seen(an_answer()), ("scores", "tokens"), 1)
    assert list(rows["tokens"][0]) == [7]
    assert list(rows["scores"][0]) == [0, 0, 0]


def test_outputs_that_nobody_asked_for_are_left_alone() -> None:
    response = an_answer()
    put(response, "EXTRA", "FP16", (9,), b"x")
    assert set(an_ensemble().read(seen(response), ("scores",), 1)) == {"scores"}


def test_an_output_that_is_missing_or_of_another_type_is_refused() -> None:
    with pytest.raises(BadUpstreamResponse):
        an_ensemble().read(seen(pb.ModelInferResponse()), ("scores",), 1)
    response = an_answer()
    put(response, "SCORES", "INT32", (1, 3), b"\0" * 12)
    with pytest.raises(BadUpstreamResponse):
        an_ensemble().read(seen(response), ("scores",), 1)


def test_an_answer_is_not_taken_for_one_that_was_described_otherwise() -> None:
    ensemble = an_ensemble()
    ensemble.read(seen(an_answer()), ("scores", "tokens"), 1)
    turned = pb.ModelInferResponse()
    put(turned, "SCORES", "FP32", (1, 3), b"\0" * 12)
    put(turned, "TOKENS", "INT32", (1, 1), (8).to_bytes(4, "little"))
    assert list(ensemble.read(seen(turned), ("scores", "tokens"), 1)["tokens"][0]) == [8]
    assert set(ensemble.read(seen(an_answer()), ("tokens",), 1)) == {"tokens"}
    another = an_answer()
    put(another, "SCORES", "FP32", (1, 4), b"\0" * 16)
    short = an_answer()
    short.raw_output_contents.pop()
    for answer, batch in ((another, 1), (short, 1), (an_answer(), 2)):
        with pytest.raises(BadUpstreamResponse):
            ensemble.read(seen(answer), ("scores", "tokens"), batch)


def test_an_answer_whose_outputs_are_no_messages_is_not_believed() -> None:
    answer = read_answer(b"\x2a\x02\x0a\x7f" + b"\x32\x00")  # a name of 127 bytes, of which none follows
    assert len(answer.outputs) == len(answer.raw_output_contents) == 1
    with pytest.raises(BadUpstreamResponse):
        an_ensemble().read(answer, ("scores",), 1)


def test_what_is_kept_of_answers_is_bounded() -> None:
    text, spans = TensorSpec("TEXT", "BYTES", (1,)), TensorSpec("SPANS", "INT32", (-1, 3))
    ensemble = Ensemble("ens", "", 8, {"text": text}, {"spans": spans})
    for count in range(2000):
        response = pb.ModelInferResponse()
        put(response, "SPANS", "INT32", (1, count, 3), b"\0" * 12 * count)
        assert len(ensemble.read(seen(response), ("spans",), 1)["spans"][0]) == 3 * count
    assert len(ensemble._layouts) <= 512
