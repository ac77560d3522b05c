"""Texts that travel together: in one request, in one dynamic batch, and beside a bad one."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, combinations

import numpy as np
import numpy.typing as npt
import pytest
from tritonclient.grpc import InferenceServerClient
from tritonclient.utils import InferenceServerException

from tests.models.conftest import Infer, Tensors, tensor_of
from tests.models.test_pii import JANE

Ids = npt.NDArray[np.int64]
ENSEMBLES = ["sentiment", "topics", "language", "minilm-l6-v2", "bge-small-en-v1.5", "pii", "analyze"]
MIXED = ["", "ok", "I love it", JANE, "word " * 100, "Il fait beau. " * 40, "x" * 3000, "The end."]
ANALYZE = ["SENTIMENT", "TOPICS", "LANGUAGE", "EMBEDDING", "TOKENS", "TRUNCATED", "ERROR"]


def same(one: Tensors, row: int, single: Tensors) -> None:
    """`row` of one answer is `single`; what only fills up spans aside."""
    assert one.keys() == single.keys()
    for name, tensor in single.items():
        together = one[name][row : row + 1]
        if tensor.dtype == object:
            assert together.tolist() == tensor.tolist()
        else:
            together = together[:, : tensor.shape[1]]
            np.testing.assert_allclose(together.astype(float), tensor.astype(float), atol=1e-5, err_msg=name)


@pytest.mark.parametrize("ensemble", ENSEMBLES)
def test_texts_of_mixed_lengths_in_one_request_are_answered_as_alone(ask: Infer, ensemble: str) -> None:
    together = ask(ensemble, MIXED)
    for row, text in enumerate(MIXED):
        same(together, row, ask(ensemble, [text]))


@pytest.mark.parametrize("ensemble", ENSEMBLES)
def test_texts_of_concurrent_requests_are_answered_as_alone(ask: Infer, ensemble: str) -> None:
    texts = MIXED[:5] * 4
    with ThreadPoolExecutor(len(texts)) as pool:
        answers = list(pool.map(lambda text: ask(ensemble, [text]), texts))
    expected = ask(ensemble, MIXED[:5])
    for number, answer in enumerate(answers):
        same(expected, number % 5, answer)


@pytest.mark.parametrize("ensemble", ENSEMBLES)
@pytest.mark.parametrize("bad", [b"\xff\xfe", b"\xed\xa0\x80", b"caf\xc3", b"\xc0\x80"])
def test_a_text_that_is_not_utf_8_answers_for_itself_alone(ask: Infer, ensemble: str, bad: bytes) -> None:
    answer = ask(ensemble, ["I love it", bad, "I hate it"])
    assert answer["ERROR"].ravel().tolist() == [b"", b"invalid_utf8", b""]
    same(answer, 0, ask(ensemble, ["I love it"]))
    same(answer, 2, ask(ensemble, ["I hate it"]))
    empty = ask(ensemble, [""])
    same(answer, 1, empty | {"ERROR": np.array([[b"invalid_utf8"]], object)})


def subsets() -> Iterator[tuple[str, ...]]:
    return chain.from_iterable(combinations(ANALYZE, count) for count in range(1, len(ANALYZE) + 1))


def test_every_subset_of_the_answers_of_analyze_can_be_asked_for(ask: Infer) -> None:
    asked = list(subsets())
    with ThreadPoolExecutor(8) as pool:
        answers = pool.map(lambda outputs: ask("analyze", ["I love it"], outputs), asked)
        assert [set(answer) for answer in answers] == [set(outputs) for outputs in asked]
    assert len(asked) == 127


def test_full_batches_pass_and_larger_ones_are_refused(ask: Infer) -> None:
    assert len(ask("sentiment", ["I love it"] * 64)["SCORES"]) == 64
    with pytest.raises(InferenceServerException, match="batch-size must be <= 64"):
        ask("sentiment", ["I love it"] * 65)


def test_every_step_can_be_called_by_itself(infer: Infer) -> None:
    text = {"TEXT": tensor_of([JANE])}
    pair = infer("reranker-tokenizer", text | {"QUERY": tensor_of(["Where does Jane live?"])})
    assert infer("reranker-network", pick(pair, "input_ids", "attention_mask", "token_type_ids"))["score"].shape == (1, 1)
    for family in ("minilm", "bge"):
        tokens = infer(f"{family}-tokenizer", text)
        assert tokens["input_ids"].shape == (1, 32)  # a bucket, not the number of tokens
        vector = infer(f"{family}-encoder", pick(tokens, "input_ids", "attention_mask", "token_type_ids"))
    published = infer("vector-identity", {"vector": vector["sentence_embedding"]})["published"]
    assert published.tolist() == vector["sentence_embedding"].tolist()
    for head, scores in (("sentiment", 3), ("topics", 704)):
        assert infer(f"{head}-head", {"vector": published})["scores"].shape == (1, scores)
    features = infer("language-features", text)
    bayes = infer("language-bayes", pick(features, "feature_ids", "counts", "inv_sqrt_bytes"))
    assert bayes["probabilities"].shape == (1, 140)
    windows = infer("pii-tokenizer", text)
    labelled = infer("pii-network", pick(windows, "input_ids", "attention_mask", "token_type_ids"))
    assert infer("pii-decoder", labelled | pick(windows, "offsets"))["SPANS"].shape == (1, 8, 3)


def pick(tensors: Tensors, *names: str) -> Tensors:
    return {name: tensors[name] for name in names}


@pytest.mark.parametrize(
    ("ids", "words"),
    [
        (np.full((1, 16), 10**9), "the network does not take these tensors"),
        (np.full((1, 16), -(10**9)), "the network does not take these tensors"),
        (np.ones((1, 1024), np.int64), "a sequence has at most 512 tokens"),
    ],
)
def test_a_step_refuses_what_it_cannot_compute_in_words_of_its_own(infer: Infer, ask: Infer, ids: Ids, words: str) -> None:
    tokens = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
    with ThreadPoolExecutor(9) as pool:
        neighbours = pool.map(lambda _: ask("sentiment", ["I love it"]), range(8))
        with pytest.raises(InferenceServerException) as refusal:
            infer("bge-encoder", tokens)
        assert [answer["SCORES"].argmax() for answer in neighbours] == [2] * 8
    assert refusal.value.message() == words
    assert refusal.value.status() == "StatusCode.INVALID_ARGUMENT"


def test_requests_of_equal_shape_are_batched(ask: Infer, client: InferenceServerClient) -> None:
    def executions() -> tuple[int, int]:
        (its,) = client.get_inference_statistics("bge-encoder").model_stats
        return its.inference_count, its.execution_count

    texts_before, runs_before = executions()
    with ThreadPoolExecutor(32) as pool:
        list(pool.map(lambda number: ask("sentiment", [f"I love it {number}"]), range(64)))
    texts, runs = executions()
    assert texts - texts_before == 64
    assert runs - runs_before < 64
