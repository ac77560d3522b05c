"""Scores that tell the text's length n in bytes, so that a test sees which text they belong to: n/(n+1), 1/(2n+2), 1/(2n+2)."""

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        rest = 0.5 / (pb_utils.get_input_tensor_by_name(request, "length").as_numpy() + 1)
        scores = np.concatenate([1 - 2 * rest, rest, rest], axis=1).astype(np.float32)
        return pb_utils.InferenceResponse([pb_utils.Tensor("SCORES", scores)])
