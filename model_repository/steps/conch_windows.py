"""A whole text as overlapping windows of token ids, so that a network of bounded length reads all of it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
from conch_step import Tensors
from conch_text import bucket, column, decoded
from tokenizers import Encoding, Tokenizer

CHARACTERS = 480  # of a window: this network reads short passages best
TOKENS = 254  # of a window, beside [CLS] and [SEP]
OVERLAP_CHARACTERS = 120
OVERLAP_TOKENS = 64
WINDOWS = 64  # of a text, about 23,000 characters of prose; what lies behind them is not read


@dataclass(frozen=True, slots=True)
class Word:
    """Tokens `first:last` of a text, which are its characters `start:end`."""

    first: int
    last: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Window:
    """Words that are read together. The answer counts for those of `own`, and no other window answers for them."""

    words: range
    own: range


class Windows:
    """`offsets` names the characters of a word at the word's first token: there its label is read. Elsewhere it is -1."""

    def __init__(self, folder: Path, _: dict[str, str]) -> None:
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.tokenizer.no_padding()
        self.tokenizer.no_truncation()
        self.opening, self.closing = (self.tokenizer.token_to_id(token) for token in ("[CLS]", "[SEP]"))

    def __call__(self, tensors: Tensors) -> Tensors:
        texts, error = decoded(tensors["TEXT"])
        encodings = self.tokenizer.encode_batch(texts, add_special_tokens=False)
        words = [list(words_of(encoding)) for encoding in encodings]
        plans = [list(islice(windows(of_text), WINDOWS)) for of_text in words]
        read = [plan[-1].own.stop if plan else 0 for plan in plans]
        return self._grids(encodings, words, plans) | {
            "TOKENS": column([2 + (w[n - 1].last if n else 0) for w, n in zip(words, read, strict=True)], np.int32),
            "TRUNCATED": column([n < len(w) for w, n in zip(words, read, strict=True)], np.bool_),
            "ERROR": error,
        }

    def _grids(
        self, encodings: Sequence[Encoding], words: Sequence[Sequence[Word]], plans: Sequence[Sequence[Window]]
    ) -> Tensors:
        count = bucket(max(1, *map(len, plans)), smallest=1)
        longest = max((tokens(w, window.words) for w, plan in zip(words, plans, strict=True) for window in plan), default=0)
        shape = (len(plans), count, bucket(2 + longest))
        ids, mask, offsets = np.zeros(shape, np.int64), np.zeros(shape, np.int64), np.full((*shape, 2), -1, np.int32)
        for item, (encoding, plan) in enumerate(zip(encodings, plans, strict=True)):
            for number, window in enumerate(plan):
                first, last = words[item][window.words[0]].first, words[item][window.words[-1]].last
                ids[item, number, : last - first + 2] = [self.opening, *encoding.ids[first:last], self.closing]
                mask[item, number, : last - first + 2] = 1
                for word in (words[item][index] for index in window.own):
                    offsets[item, number, word.first - first + 1] = word.start, word.end
        return {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids), "offsets": offsets}


def words_of(encoding: Encoding) -> Iterator[Word]:
    numbers, offsets = [*encoding.word_ids, None], encoding.offsets
    first = 0
    for token in range(1, len(numbers)):
        if numbers[token] != numbers[first]:
            yield Word(first, token, offsets[first][0], offsets[token - 1][1])
            first = token


def windows(words: Sequence[Word]) -> Iterator[Window]:
    """Each as long as may be; where two overlap, the first half belongs to the earlier one."""
    start = owned = 0
    while start < len(words):
        end = start + 1
        while end < len(words) and fits(words[start], words[end], CHARACTERS, TOKENS):
            end += 1
        after = end if end == len(words) else overlap(words, start, end)
        border = (after + end) // 2
        yield Window(range(start, end), range(owned, border))
        start, owned = after, border


def overlap(words: Sequence[Word], start: int, end: int) -> int:
    """Where the window after `start:end` begins: later than this one, and as early as the overlap allows."""
    after = end
    while after - 1 > start and fits(words[after - 1], words[end - 1], OVERLAP_CHARACTERS, OVERLAP_TOKENS):
        after -= 1
    return after


def fits(first: Word, last: Word, most_characters: int, most_tokens: int) -> bool:
    return last.end - first.start <= most_characters and last.last - first.first <= most_tokens


def tokens(words: Sequence[Word], window: range) -> int:
    return words[window[-1]].last - words[window[0]].first
