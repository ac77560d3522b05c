"""How well documents answer a query: against the same network outside Triton, and against published logits."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from tests.models.conftest import Infer, Outside, Tensors, tensor_of

BERLIN = "How many people live in Berlin?"
POPULATION = "Berlin had a population of 3,520,031 registered inhabitants in an area of 891.82 square kilometers."
MUSEUMS = "Berlin is well known for its museums."
DOCUMENTS = [POPULATION, MUSEUMS, "", "ok", "L'été, les « cafés » sont pleins — 🙂", "word " * 300, POPULATION + " so" * 600]


def rank(infer: Infer, query: str | bytes, documents: Sequence[str | bytes]) -> Tensors:
    return infer("ms-marco-minilm", {"TEXT": tensor_of(documents), "QUERY": tensor_of([query] * len(documents))})


def test_a_score_is_that_of_the_network_alone(infer: Infer, outside: Outside) -> None:
    answer = rank(infer, BERLIN, DOCUMENTS)
    np.testing.assert_allclose(answer["SCORE"].ravel(), [outside.relevance(BERLIN, text) for text in DOCUMENTS], atol=1e-4)
    assert answer["TRUNCATED"].ravel().tolist() == [False] * 6 + [True]
    assert answer["TOKENS"].ravel().tolist()[2] == 10  # seven of the query, three that join the pair
    assert answer["TOKENS"].ravel().tolist()[6] == 512


def test_scores_are_close_to_those_of_the_model_card(infer: Infer) -> None:
    # 9.218911 and -4.0780287 there; ours come from a package that had rounded the weights to int8.
    np.testing.assert_allclose(rank(infer, BERLIN, [POPULATION, MUSEUMS])["SCORE"].ravel(), [9.2189, -4.0780], atol=0.2)


@pytest.mark.parametrize(
    ("query", "documents"),
    [
        (
            "how do I reset my router to factory settings",
            [
                "Hold the reset button on the back of the router for ten seconds to restore its factory settings.",
                "A modem connects your home to your internet provider.",
                "Cook the pasta in salted water for nine minutes.",
            ],
        ),
        (
            "who won the world cup in 2018",
            [
                "France won the 2018 World Cup by beating Croatia 4-2 in the final.",
                "The 2018 World Cup was held in Russia.",
                "The stock market fell by two percent.",
            ],
        ),
    ],
)
def test_documents_are_ranked_by_how_well_they_answer(infer: Infer, query: str, documents: list[str]) -> None:
    scores = rank(infer, query, documents)["SCORE"].ravel().tolist()
    assert scores == sorted(scores, reverse=True)
    assert scores[0] > 0 > scores[-1]


def test_a_query_takes_at_most_half_of_the_room(infer: Infer) -> None:
    texts = ["word " * 254, "word " * 255]
    answers = [rank(infer, text, [POPULATION, "word " * 255, "word " * 256]) for text in texts]
    assert [answer["TRUNCATED"].ravel().tolist() for answer in answers] == [[False, False, True], [True, True, True]]
    np.testing.assert_array_equal(answers[0]["SCORE"], answers[1]["SCORE"])


def test_pairs_of_concurrent_requests_are_answered_as_alone(infer: Infer) -> None:
    queries = [BERLIN, "What is Berlin known for?", "cafés en été", "word " * 300] * 3
    with ThreadPoolExecutor(len(queries)) as pool:
        answers = list(pool.map(lambda query: rank(infer, query, DOCUMENTS[:5]), queries))
    for query, answer in zip(queries[:4], answers, strict=False):
        for at, document in enumerate(DOCUMENTS[:5]):
            np.testing.assert_allclose(answer["SCORE"][at], rank(infer, query, [document])["SCORE"][0], atol=1e-4)
    for first, second, third in zip(*(answers[at : at + 4] for at in (0, 4, 8)), strict=True):
        np.testing.assert_allclose(first["SCORE"], second["SCORE"], atol=1e-4)
        np.testing.assert_allclose(first["SCORE"], third["SCORE"], atol=1e-4)


def test_rows_of_one_request_may_have_queries_of_their_own(infer: Infer) -> None:
    queries = [BERLIN, "What is Berlin known for?"]
    mixed = infer("ms-marco-minilm", {"TEXT": tensor_of([POPULATION, MUSEUMS]), "QUERY": tensor_of(queries)})
    apart = [rank(infer, query, [text])["SCORE"][0] for query, text in zip(queries, [POPULATION, MUSEUMS], strict=True)]
    np.testing.assert_allclose(mixed["SCORE"], apart, atol=1e-4)


def test_bytes_that_are_not_utf_8_answer_for_themselves_alone(infer: Infer) -> None:
    answer = rank(infer, BERLIN, [POPULATION, b"\xff\xfe", MUSEUMS])
    assert answer["ERROR"].ravel().tolist() == [b"", b"invalid_utf8", b""]
    np.testing.assert_allclose(answer["SCORE"][[0, 2]], rank(infer, BERLIN, [POPULATION, MUSEUMS])["SCORE"], atol=1e-4)
    assert rank(infer, b"\xff", [POPULATION])["ERROR"].tolist() == [[b"invalid_utf8"]]
