"""What a naive Bayes language model looks at: which byte sequences a text holds, how often, and how long the text is.

The automaton and the rules before it (case, normal form) are py3langid's, whose tables these are; so are the answers.
"""

from collections import Counter
from pathlib import Path
from unicodedata import normalize

import numpy as np
from conch_step import Tensors
from conch_text import bucket, column, decoded, padded


class Features:
    def __init__(self, folder: Path, _: dict[str, str]) -> None:
        with np.load(folder / "automaton.npz", allow_pickle=False) as tables:
            # Lists and memoryviews: one number out of an array would cost ten times as much.
            self.next_state = memoryview(tables["nextmove"])
            self.row = [row << 8 for row in tables["nextmove_row"].tolist()]
            self.feature = tables["out_feat"].tolist()

    def __call__(self, tensors: Tensors) -> Tensors:
        texts, error = decoded(tensors["TEXT"])
        encoded = [prepared(text) for text in texts]
        found = [self.count(text) for text in encoded]
        width = bucket(max(1, *map(len, found)))
        return {
            "feature_ids": padded([list(counts) for counts in found], width, np.int64),
            "counts": padded([list(counts.values()) for counts in found], width, np.float32),
            "inv_sqrt_bytes": column([max(1, len(text)) ** -0.5 for text in encoded], np.float32),
            "TRUNCATED": column([False] * len(texts), np.bool_),  # it reads all of a text, whatever its length
            "ERROR": error,
        }

    def count(self, text: bytes) -> Counter[int]:
        next_state, row, feature = self.next_state, self.row, self.feature
        state, found = 0, []
        for byte in text:
            state = next_state[row[state] + byte]
            if feature[state] >= 0:
                found.append(feature[state])
        return Counter(found)


def prepared(text: str) -> bytes:
    return normalize("NFC", text.lower() if text.isupper() else text).encode()
