"""Answers any task with little more than the length of each text in bytes.

Whoever asks for SEEN is told, in pairs, each TEXT and the QUERY beside it that were asked since somebody last wanted to know.
"""

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.seen = []

    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        texts, queries = (pb_utils.get_input_tensor_by_name(request, name).as_numpy().ravel() for name in ("TEXT", "QUERY"))
        if "SEEN" in request.requested_output_names():
            seen, self.seen = self.seen, []
            return pb_utils.InferenceResponse([pb_utils.Tensor("SEEN", np.array([seen], object))])
        for pair in zip(texts, queries, strict=True):
            self.seen += pair
        return pb_utils.InferenceResponse(self.outputs(len(texts), np.array([[len(text)] for text in texts], np.int32)))

    def outputs(self, batch, length):
        return [
            pb_utils.Tensor("SCORES", np.full((batch, 3), 0.25, np.float32)),
            pb_utils.Tensor("SPANS", np.full((batch, 1, 3), -1, np.int32)),
            pb_utils.Tensor("SPAN_SCORES", np.zeros((batch, 1), np.float32)),
            pb_utils.Tensor("EMBEDDING", np.ones((batch, 2), np.float32)),
            pb_utils.Tensor("SCORE", length.astype(np.float32)),
            pb_utils.Tensor("TOKENS", length),
        ]
