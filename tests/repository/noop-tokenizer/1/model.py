"""Counts bytes: the length of each text is all that its head looks at."""

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        texts = pb_utils.get_input_tensor_by_name(request, "TEXT").as_numpy()
        length = np.array([[len(text)] for text in texts.ravel()], np.int32)
        error = np.array([[b""]] * len(length), object)
        return pb_utils.InferenceResponse(
            [
                pb_utils.Tensor("length", length),
                pb_utils.Tensor("TOKENS", length),
                pb_utils.Tensor("TRUNCATED", np.zeros((len(length), 1), bool)),
                pb_utils.Tensor("ERROR", error),
            ]
        )
