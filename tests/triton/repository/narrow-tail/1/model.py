from time import sleep

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        seconds = pb_utils.get_input_tensor_by_name(request, "SECONDS").as_numpy()
        sleep(min(float(seconds.max()), 5.0))
        scores = np.tile(np.array([[0.5, 0.25, 0.25]], np.float32), (len(seconds), 1))
        return pb_utils.InferenceResponse([pb_utils.Tensor("SCORES", scores)])
