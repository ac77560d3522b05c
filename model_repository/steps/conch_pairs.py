"""A query and a document as one sequence, for a network that judges how well they fit."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from conch_step import Tensors
from conch_text import bucket, column, decoded, padded
from tokenizers import Tokenizer


class Pairs:
    """The parameter `max_tokens` is a bucket itself: the network's longest input, special tokens included.

    What is too long is cut off the document; off the query only what would take more than half of the room.
    """

    def __init__(self, folder: Path, parameters: dict[str, str]) -> None:
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.tokenizer.no_padding()
        self.tokenizer.no_truncation()
        self.opening, self.closing = (self.tokenizer.token_to_id(token) for token in ("[CLS]", "[SEP]"))
        self.longest = int(parameters["max_tokens"])

    def __call__(self, tensors: Tensors) -> Tensors:
        documents, error = decoded(tensors["TEXT"])
        queries, error_of_query = decoded(tensors["QUERY"])
        pairs = self._pairs(queries, documents)
        lengths = [len(first) + len(second) for first, second, _ in pairs]
        width = bucket(max(lengths))
        return {
            "input_ids": padded([first + second for first, second, _ in pairs], width, np.int64),
            "attention_mask": padded([[1] * length for length in lengths], width, np.int64),
            "token_type_ids": padded([[0] * len(first) + [1] * len(second) for first, second, _ in pairs], width, np.int64),
            "TOKENS": column(lengths, np.int32),
            "TRUNCATED": column([cut for _, _, cut in pairs], np.bool_),
            "ERROR": np.where(error == b"", error_of_query, error),
        }

    def _pairs(self, queries: Sequence[str], documents: Sequence[str]) -> list[tuple[list[int], list[int], bool]]:
        """`[CLS] query [SEP]`, `document [SEP]`, and whether either was cut. Often one query asks for all: it is read once."""
        different = list(dict.fromkeys(queries))
        ids_of = dict(zip(different, self._ids(different), strict=True))
        pairs = []
        for query, document in zip(queries, self._ids(documents), strict=True):
            first = [self.opening, *ids_of[query][: self.longest // 2 - 2], self.closing]
            room = self.longest - len(first) - 1
            cut = len(ids_of[query]) > len(first) - 2 or len(document) > room
            pairs.append((first, [*document[:room], self.closing], cut))
        return pairs

    def _ids(self, texts: Sequence[str]) -> list[list[int]]:
        return [encoding.ids for encoding in self.tokenizer.encode_batch(texts, add_special_tokens=False)]
