"""What the ensembles answer, held against the same networks outside Triton and against published values."""

import json
from pathlib import Path

import numpy as np
import pytest

from tests.models.conftest import SOURCE, Infer, Outside

TEXTS = [
    "I absolutely love this phone, the camera is amazing!",
    "Terrible service. I want my money back.",
    "The meeting starts at 3 pm in room 12.",
    "A crusty sourdough bread recipe with just flour, water and salt, baked in a Dutch oven.",
    "L'été, les « cafés » sont pleins — 🙂",
    "",
    " \u0000\ufeff ",
    "word " * 300,
]


def labels(name: str) -> list[str]:
    return list(json.loads((SOURCE / "labels" / f"{name}.json").read_text()))


@pytest.mark.parametrize(("ensemble", "family", "most"), [("minilm-l6-v2", "minilm", 256), ("bge-small-en-v1.5", "bge", 512)])
def test_a_vector_is_that_of_the_network_alone(ask: Infer, outside: Outside, ensemble: str, family: str, most: int) -> None:
    answer = ask(ensemble, TEXTS)
    expected = np.array([outside.vector(family, text, most) for text in TEXTS])
    np.testing.assert_allclose(answer["EMBEDDING"], expected, atol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(answer["EMBEDDING"], axis=1), 1, atol=1e-5)


@pytest.mark.parametrize("ensemble", ["sentiment", "topics"])
def test_scores_are_those_of_the_networks_alone(ask: Infer, outside: Outside, ensemble: str) -> None:
    expected = [outside.head(ensemble, outside.vector("bge", text, 512)) for text in TEXTS]
    np.testing.assert_allclose(ask(ensemble, TEXTS)["SCORES"], expected, atol=1e-5)


def test_a_text_is_cut_at_the_length_of_its_network_and_the_answer_says_so(ask: Infer) -> None:
    texts = ["word " * 254, "word " * 255, "word " * 510, "word " * 511]
    minilm, bge = (ask(model, texts, ["TOKENS", "TRUNCATED"]) for model in ("minilm-l6-v2", "bge-small-en-v1.5"))
    assert minilm["TOKENS"].ravel().tolist() == [256, 256, 256, 256]
    assert minilm["TRUNCATED"].ravel().tolist() == [False, True, True, True]
    assert bge["TOKENS"].ravel().tolist() == [256, 257, 512, 512]
    assert bge["TRUNCATED"].ravel().tolist() == [False, False, False, True]


def test_minilm_gives_the_values_of_its_model_card(ask: Infer) -> None:
    vector = ask("minilm-l6-v2", ["This is an example sentence"])["EMBEDDING"][0]
    np.testing.assert_allclose(vector[:4], [0.0676569, 0.0634959, 0.0487131, 0.0793049], atol=1e-6)


def test_bge_ranks_by_meaning(ask: Infer) -> None:
    texts = [
        "cheap flights to Spain",
        "Low-cost airline tickets to Madrid and Barcelona from 29 euros.",
        "A crusty sourdough bread recipe with just flour, water and salt.",
        "The central bank raised interest rates by a quarter point.",
    ]
    query, *others = ask("bge-small-en-v1.5", texts)["EMBEDDING"]
    flights, bread, bank = (float(query @ other) for other in others)
    assert flights > 0.7 > 0.55 > max(bread, bank)


@pytest.mark.parametrize(
    ("text", "label", "least"),
    [
        ("I love it", "positive", 0.99),
        ("I absolutely love this phone, the camera is amazing!", "positive", 0.99),
        ("Terrible service. I want my money back.", "negative", 0.99),
        ("It's not bad, but I wouldn't watch it twice.", "negative", 0.7),
        ("The meeting starts at 3 pm in room 12.", "neutral", 0.5),
        ("Shares rose 2%", "positive", 0.5),
    ],
)
def test_sentiment_tells_praise_from_complaint(ask: Infer, text: str, label: str, least: float) -> None:
    (scores,) = ask("sentiment", [text])["SCORES"]
    assert labels("sentiment")[scores.argmax()] == label
    assert scores.max() > least
    assert abs(scores.sum() - 1) < 1e-5


def test_topics_finds_the_first_tier_of_plain_sentences(ask: Infer) -> None:
    cases = json.loads(Path(__file__).with_name("iab_sentences.json").read_text())
    scores = ask("topics", [case["text"] for case in cases])["SCORES"]
    names = labels("topics")
    right = [tier_1(names[row.argmax()]) == case["tier1"] for row, case in zip(scores, cases, strict=True)]
    assert len(right) == 40
    assert sum(right) >= 36


def tier_1(label: str) -> str:
    return label.rpartition(" (")[0].split(" > ")[0]


# What py3langid 0.4.0 itself answers, with norm_probs=True.
LANGUAGES = [
    ("The weather is lovely today and we are going to the beach.", "en", 0.9991690),
    ("Das Wetter ist heute schön und wir gehen an den Strand.", "de", 0.9998369),
    ("Hace buen tiempo hoy y vamos a la playa.", "es", 0.9536304),
    ("Сегодня хорошая погода, и мы идём на пляж.", "ru", 0.9845456),
    ("今天天气很好，我们去海滩。", "zh", 0.9391286),
    ("오늘은 날씨가 좋아서 해변에 갑니다.", "ko", 1.0),
    ("الطقس جميل اليوم ونحن ذاهبون إلى الشاطئ.", "ar", 0.7970361),
    ("Dnes je krásné počasí a jdeme na pláž.", "sk", 0.5601111),
    ("Данас је лепо време и идемо на плажу.", "sr", 0.7525059),
    ("Danas je lijepo vrijeme i idemo na plažu.", "hr", 0.6130794),
    ("NOUS ALLONS À LA PLAGE", "fr", 0.9930124),
    ("cafe\u0301 cre\u0300me", "fr", 0.4015091),
    ("🙂🙂🙂", "zxx", 0.1424509),
    ("", "sr", 0.0140845),
    ("ok", "sr", 0.0140845),
]


def test_language_answers_as_the_library_it_comes_from(ask: Infer) -> None:
    answer = ask("language", [text for text, _, _ in LANGUAGES])
    names = labels("languages")
    assert not answer["TRUNCATED"].any()
    for row, (text, language, probability) in zip(answer["SCORES"], LANGUAGES, strict=True):
        assert names[row.argmax()] == language, text
        assert abs(row.max() - probability) < 1e-5, text


def test_analyze_answers_as_its_parts_do(ask: Infer) -> None:
    everything = ask("analyze", TEXTS)
    parts = {
        "SENTIMENT": ask("sentiment", TEXTS)["SCORES"],
        "TOPICS": ask("topics", TEXTS)["SCORES"],
        "LANGUAGE": ask("language", TEXTS)["SCORES"],
        "EMBEDDING": ask("bge-small-en-v1.5", TEXTS)["EMBEDDING"],
    }
    for output, expected in parts.items():
        np.testing.assert_allclose(everything[output], expected, atol=1e-5)
