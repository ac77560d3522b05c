"""The models that exist for tests alone do what other tests rely on."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from time import sleep

import numpy as np
import pytest
from tritonclient.grpc import InferenceServerClient
from tritonclient.utils import InferenceServerException

from tests.models.conftest import Infer, asking, inferring, tensor_of
from tests.peers import Triton

SECRET = "hunter2"


@pytest.fixture(scope="module")
def infer(small_triton: Triton) -> Iterator[Infer]:
    client = InferenceServerClient(small_triton.grpc)
    yield inferring(client)
    client.close()


@pytest.fixture(scope="module")
def ask(infer: Infer) -> Infer:
    return asking(infer)


def test_noop_tells_how_long_each_text_is(ask: Infer) -> None:
    answer = ask("noop", ["", "a", "é", "x" * 99])
    assert answer["TOKENS"].ravel().tolist() == [0, 1, 2, 99]
    np.testing.assert_allclose(answer["SCORES"][:, 0], [0, 1 / 2, 2 / 3, 99 / 100], atol=1e-6)


def test_foreign_answers_by_other_names(infer: Infer) -> None:
    answer = infer("foreign", {"utterance": tensor_of(["Is it?", "It is so."])})
    assert {name: tensor.tolist() for name, tensor in answer.items()} == {
        "probs": [[0.25, 0.75], [0.75, 0.25]],
        "n_tok": [[2], [3]],
    }


@pytest.mark.parametrize("text", [b"", b"\x00", b"\xff\xfe", "🙂\u0000é\ufeff".encode(), b"x" * 100_000])
def test_echo_proves_every_byte(ask: Infer, text: bytes) -> None:
    answer = ask("echo", [text])
    assert bytes(answer["EMBEDDING"][0].astype(np.uint8).tolist()) == sha256(text).digest()
    assert answer["TOKENS"].tolist() == [[len(text)]]


def test_a_call_to_sleepy_waits_for_the_one_before_and_can_be_rejected_meanwhile(ask: Infer) -> None:
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(ask, "sleepy", ["2"])
        sleep(0.5)  # by now it runs, and nothing else can
        with pytest.raises(InferenceServerException, match="Request timeout expired"):
            ask("sleepy", ["0"], timeout=1000)
        assert first.result()["TOKENS"].tolist() == [[1]]


@pytest.mark.parametrize(
    ("fault", "status"),
    [("raise", "INTERNAL"), ("invalid", "INVALID_ARGUMENT"), ("internal", "INTERNAL"), ("unavailable", "UNAVAILABLE")],
)
def test_faulty_fails_by_name_and_gives_away_a_secret(ask: Infer, fault: str, status: str) -> None:
    with pytest.raises(InferenceServerException, match=SECRET) as failure:
        ask("faulty", [fault])
    assert failure.value.status() == f"StatusCode.{status}"


@pytest.mark.parametrize(
    ("fault", "shape"), [("nan", (2, 3)), ("inf", (2, 3)), ("negative", (2, 3)), ("short", (1, 3)), ("wide", (2, 4))]
)
def test_faulty_answers_wrongly_by_name(ask: Infer, fault: str, shape: tuple[int, int]) -> None:
    scores = ask("faulty", [fault, "another"])["SCORES"]
    assert scores.shape == shape
    assert fault in ("short", "wide") or not (np.isfinite(scores).all() and (scores >= 0).all())


def test_faulty_can_leave_out_its_scores_or_blame_an_item(ask: Infer) -> None:
    assert "SCORES" not in ask("faulty", ["missing"])
    assert ask("faulty", ["fine", "item"])["ERROR"].tolist() == [[b""], [b"too_odd"]]
