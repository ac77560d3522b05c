"""Personal data: exact spans, in texts of any length."""

import json

import pytest

from tests.models.conftest import SOURCE, Infer, Tensors

LABELS = json.loads((SOURCE / "labels" / "pii.json").read_text())
JANE = "My name is Jane Doe, I live at 221B Baker Street, Springfield, IL 62704. Call (415) 555-0132."
FOUND = [
    ("GIVEN_NAME", "Jane"),
    ("SURNAME", "Doe"),
    ("BUILDING_NUMBER", "221B"),
    ("STREET_NAME", "Baker Street"),
    ("CITY", "Springfield"),
    ("STATE", "IL"),
    ("ZIP_CODE", "62704"),
    ("PHONE", "(415) 555-0132"),
]
FILLER = "The committee will meet again after the summer to talk about the budget of the library. "


def entities(answer: Tensors, texts: list[str]) -> list[list[tuple[str, str]]]:
    """Label and words of every span of every text."""
    return [
        [(LABELS[label], text[start:end]) for start, end, label in spans.tolist() if label >= 0]
        for spans, text in zip(answer["SPANS"], texts, strict=True)
    ]


def test_spans_are_whole_words_with_their_labels(ask: Infer) -> None:
    answer = ask("pii", [JANE])
    assert entities(answer, [JANE]) == [FOUND]
    assert all(0.3 < score <= 1 for score in answer["SPAN_SCORES"][0])


def test_the_pieces_of_an_address_are_one_span(ask: Infer) -> None:
    text = JANE[:-1] + " or write to jane.doe@example.com."
    assert entities(ask("pii", [text]), [text]) == [[*FOUND, ("EMAIL", "jane.doe@example.com")]]


@pytest.mark.parametrize("text", ["", " ", "The Lakers won again.", "\u0000", "🙂"])
def test_a_text_without_personal_data_has_no_spans(ask: Infer, text: str) -> None:
    answer = ask("pii", [text])
    assert answer["SPANS"].tolist() == [[[-1, -1, -1]]]


def test_offsets_count_code_points(ask: Infer) -> None:
    texts = ["🙂 e\u0301é " + JANE, "𝒜" * 40 + " " + JANE, "\u200b\ufeff\u0000 " + JANE]
    assert all(set(FOUND) <= set(found) for found in entities(ask("pii", texts), texts))


def test_the_whole_of_a_long_text_is_read_once(ask: Infer) -> None:
    # Step by step, the sentence crosses every border and every overlap of the first windows.
    texts = [FILLER * 5 + "so " * shift + JANE + " " + FILLER * 8 for shift in range(0, 160, 10)]
    for found in entities(ask("pii", texts), texts):
        assert found == FOUND


def test_a_text_of_20000_characters_is_read_to_its_end(ask: Infer) -> None:
    text = FILLER * 226 + JANE
    answer = ask("pii", [text])
    assert 19_900 < len(text) < 20_000
    assert entities(answer, [text]) == [FOUND]
    assert not answer["TRUNCATED"].any()


def test_what_lies_behind_the_last_window_is_not_read_and_the_answer_says_so(ask: Infer) -> None:
    text = FILLER * 300 + JANE
    answer = ask("pii", [JANE, text])
    assert answer["TRUNCATED"].ravel().tolist() == [False, True]
    assert entities(answer, [JANE, text]) == [FOUND, []]


@pytest.mark.parametrize("text", ["한국어 " * 400, "x" * 6000, "4155550132" * 300, "ab-" * 2000, "\n" * 5000, "漢" * 2000])
def test_dense_and_unbroken_texts_are_answered(ask: Infer, text: str) -> None:
    answer = ask("pii", [text + " " + JANE])
    assert ("SURNAME", "Doe") in entities(answer, [text + " " + JANE])[0]
