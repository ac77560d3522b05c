"""The steps' own arithmetic, without Triton."""

import re
from itertools import pairwise

import conch_windows
import numpy as np
import pytest
from conch_language import prepared
from conch_network import TOKENS_PER_RUN, lengths_of, pick, runs
from conch_spans import Labelled, Spans, spans
from conch_step import Unfit, place
from conch_text import bucket, decoded
from conch_windows import Word, windows
from hypothesis import given
from hypothesis import strategies as st


@pytest.mark.parametrize(("length", "width"), [(0, 16), (1, 16), (16, 16), (17, 32), (64, 64), (65, 128), (511, 512)])
def test_lengths_go_up_to_the_next_bucket(length: int, width: int) -> None:
    assert bucket(length) == width


@given(st.lists(st.one_of(st.text(), st.binary())))
def test_texts_come_through_as_they_are_or_empty_with_an_error(raw: list[str | bytes]) -> None:
    sent = [text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text for text in raw]
    texts, error = decoded(np.array([[text] for text in sent], object).reshape(-1, 1))
    for text, code, original in zip(texts, error.ravel(), sent, strict=True):
        assert (text.encode() == original and code == b"") or (text == "" and code == b"invalid_utf8")


def words(lengths: list[tuple[int, int]]) -> list[Word]:
    """Of so many tokens and characters, with a blank between two."""
    made, token, character = [], 0, 0
    for tokens, characters in lengths:
        made.append(Word(token, token + tokens, character, character + characters))
        token, character = token + tokens, character + characters + 1
    return made


@given(st.lists(st.tuples(st.integers(1, 100), st.integers(1, 700)), max_size=200))
def test_windows_own_every_word_once_and_in_order(lengths: list[tuple[int, int]]) -> None:
    text = words(lengths)
    plan = list(windows(text))
    assert [index for window in plan for index in window.own] == list(range(len(text)))
    assert all(index in window.words for window in plan for index in window.own)


@given(st.lists(st.tuples(st.integers(1, 100), st.integers(1, 700)), max_size=200))
def test_windows_of_several_words_keep_within_what_the_network_reads_best(lengths: list[tuple[int, int]]) -> None:
    text = words(lengths)
    for window in windows(text):
        first, last = text[window.words[0]], text[window.words[-1]]
        assert last.last - first.first <= conch_windows.TOKENS
        assert last.end - first.start <= conch_windows.CHARACTERS or len(window.words) == 1


def test_neighbouring_windows_of_plain_prose_share_their_border() -> None:
    for earlier, later in pairwise(windows(words([(1, 5)] * 1000))):
        shared = range(later.words.start, earlier.words.stop)
        assert len(shared) == 20
        assert earlier.own.stop == later.own.start == shared.start + 10


@given(st.lists(st.integers(0, 512), min_size=1, max_size=64))
def test_runs_take_every_sequence_once_and_stay_within_the_budget(lengths: list[int]) -> None:
    planned = [rows.tolist() for rows in runs(np.array(lengths), TOKENS_PER_RUN)]
    taken = [row for rows in planned for row in rows]
    assert sorted(taken) == [row for row, length in enumerate(lengths) if length]
    for rows in planned:
        longest, shortest = lengths[rows[0]], min(lengths[row] for row in rows)
        assert longest == max(lengths[row] for row in rows)
        assert len(rows) * longest <= TOKENS_PER_RUN
        assert longest <= 16 or shortest > longest // 2


def test_a_sequence_is_as_long_as_its_last_token_says() -> None:
    assert lengths_of(np.array([[[1, 1, 0], [0, 0, 0]], [[0, 1, 0], [0, 0, 1]]])).tolist() == [2, 0, 2, 3]


def test_a_run_holds_only_the_tokens_that_it_needs() -> None:
    windows = np.arange(2 * 4 * 16).reshape(2, 4, 16)
    assert pick(windows, windows.shape, np.array([5, 0]), 3).tolist() == [[[80, 81, 82]], [[0, 1, 2]]]
    beside = np.array([[0.5], [0.25]])
    assert pick(beside, (2, 16), np.array([1]), 3).tolist() == [[0.25]]


# Labels: 0 none, 1 and 2 begin and continue one kind, 3 and 4 another. Words as (start, end, label).
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ([], []),
        ([(0, 4, 0)], []),
        ([(0, 4, 1)], [(0, 4, 0)]),
        ([(0, 4, 1), (5, 9, 2)], [(0, 9, 0)]),  # continued
        ([(0, 4, 1), (5, 9, 1)], [(0, 4, 0), (5, 9, 0)]),  # begun anew, after a blank
        ([(0, 4, 1), (4, 9, 1)], [(0, 9, 0)]),  # begun anew, without a blank
        ([(0, 4, 1), (5, 9, 4)], [(0, 4, 0), (5, 9, 1)]),  # continued as another kind
        ([(0, 4, 2), (5, 9, 0), (10, 12, 2)], [(0, 4, 0), (10, 12, 0)]),  # continued after a gap
        ([(0, 4, 1), (4, 5, 0), (5, 9, 1)], [(0, 9, 0)]),  # one gap without a blank
        ([(0, 4, 1), (4, 5, 0), (5, 6, 0), (6, 9, 1)], [(0, 4, 0), (6, 9, 0)]),  # two
        ([(0, 4, 1), (4, 5, 0), (6, 9, 1)], [(0, 4, 0), (6, 9, 0)]),  # one gap and a blank
        ([(0, 4, 1), (4, 5, 3), (5, 9, 1)], [(0, 4, 0), (4, 5, 1), (5, 9, 0)]),  # another kind between
    ],
)
def test_labels_become_spans(text: list[tuple[int, int, int]], expected: list[tuple[int, int, int]]) -> None:
    found = spans(Labelled(start, end, label, 0.5) for start, end, label in text)
    assert [(span.start, span.end, span.kind) for span in found] == expected


def test_a_span_is_as_sure_as_its_words_are_on_average() -> None:
    (span,) = spans([Labelled(0, 4, 1, 0.5), Labelled(5, 9, 2, 1.0)])
    assert span.scores == [0.5, 1.0]


def test_tensors_that_do_not_belong_together_are_refused() -> None:
    with pytest.raises(Unfit):
        Spans()({"labels": np.zeros((1, 1, 16)), "scores": np.zeros((1, 1, 16)), "offsets": np.zeros((1, 1, 8, 2))})


def test_language_features_do_not_depend_on_case_of_shouting_or_on_the_form_of_accents() -> None:
    assert prepared("NOUS ALLONS À LA PLAGE") == prepared("nous allons à la plage")
    assert prepared("cafe\u0301") == prepared("café")
    assert prepared("Nous") != prepared("nous")


def test_the_log_says_where_a_step_failed_and_nothing_of_the_text() -> None:
    with pytest.raises(ValueError, match="a tenant's text") as failure:
        int("a tenant's text")
    assert re.fullmatch(r"ValueError at test_steps\.py:\d+", place(failure.value))
