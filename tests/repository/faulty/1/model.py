"""Every way in which a model can go wrong, by name. Any other text is answered like noop's.

raise        an exception with a secret in its words
invalid      TritonError INVALID_ARG with a secret      internal     the same, INTERNAL
unavailable  the same, UNAVAILABLE                      item         ERROR says `too_odd` for each text that is "item"
nan, inf     scores that are no numbers                 negative     a score of -1
empty        a batch of no rows                         short        one row less than was asked for
wide         four scores instead of three               missing      no SCORES at all
type         SCORES as FP64                             die          the process ends
"""

import os

import numpy as np
import triton_python_backend_utils as pb_utils

SECRET = "hunter2 in /srv/secret/model.py"
ERRORS = {b"invalid": "INVALID_ARG", b"internal": "INTERNAL", b"unavailable": "UNAVAILABLE"}


def scores_of(fault, scores):
    if fault in (b"nan", b"inf", b"negative"):
        scores[0, 0] = {b"nan": np.nan, b"inf": np.inf, b"negative": -1.0}[fault]
    bent = {b"empty": scores[:0], b"short": scores[:-1], b"wide": scores[:, [0, 1, 2, 2]], b"type": scores.astype(np.float64)}
    return np.ascontiguousarray(bent.get(fault, scores))


class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        texts = pb_utils.get_input_tensor_by_name(request, "TEXT").as_numpy().ravel()
        fault = texts[0]
        if fault == b"raise":
            raise RuntimeError(SECRET)
        if fault == b"die":
            os._exit(1)
        if fault in ERRORS:
            return pb_utils.InferenceResponse(error=pb_utils.TritonError(SECRET, getattr(pb_utils.TritonError, ERRORS[fault])))
        return pb_utils.InferenceResponse(self.outputs(texts, fault))

    def outputs(self, texts, fault):
        length = np.array([[len(text)] for text in texts], np.int32)
        rest = 0.5 / (length + 1)
        scores = np.concatenate([1 - 2 * rest, rest, rest], axis=1).astype(np.float32)
        outputs = [
            pb_utils.Tensor("TOKENS", length),
            pb_utils.Tensor("TRUNCATED", np.zeros((len(texts), 1), bool)),
            pb_utils.Tensor("ERROR", np.array([[b"too_odd" if text == b"item" else b""] for text in texts], object)),
        ]
        if fault != b"missing":
            outputs.append(pb_utils.Tensor("SCORES", scores_of(fault, scores)))
        return outputs
