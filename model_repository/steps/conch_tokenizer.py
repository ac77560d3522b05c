"""Texts to token ids, cut at the length that the network takes."""

from pathlib import Path

import numpy as np
from conch_step import Tensors
from conch_text import bucket, column, decoded, padded
from tokenizers import Tokenizer


class Tokenize:
    """The parameter `max_tokens` is a bucket itself: the network's longest input, special tokens included."""

    def __init__(self, folder: Path, parameters: dict[str, str]) -> None:
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.tokenizer.no_padding()  # the file may bring both, with lengths of its own
        self.tokenizer.enable_truncation(int(parameters["max_tokens"]))

    def __call__(self, tensors: Tensors) -> Tensors:
        texts, error = decoded(tensors["TEXT"])
        encodings = self.tokenizer.encode_batch(texts)
        lengths = [len(encoding.ids) for encoding in encodings]
        width = bucket(max(lengths))
        return {
            "input_ids": padded([encoding.ids for encoding in encodings], width, np.int64),
            "attention_mask": padded([encoding.attention_mask for encoding in encodings], width, np.int64),
            "token_type_ids": np.zeros((len(texts), width), np.int64),
            "TOKENS": column(lengths, np.int32),
            "TRUNCATED": column([bool(encoding.overflowing) for encoding in encodings], np.bool_),
            "ERROR": error,
        }
