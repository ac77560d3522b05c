from hashlib import sha256

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        texts = pb_utils.get_input_tensor_by_name(request, "TEXT").as_numpy().ravel()
        digests = np.array([list(sha256(text).digest()) for text in texts], np.float32)
        return pb_utils.InferenceResponse(
            [
                pb_utils.Tensor("EMBEDDING", digests),
                pb_utils.Tensor("TOKENS", np.array([[len(text)] for text in texts], np.int32)),
                pb_utils.Tensor("TRUNCATED", np.zeros((len(texts), 1), bool)),
                pb_utils.Tensor("ERROR", np.array([[b""]] * len(texts), object)),
            ]
        )
