import numpy as np
import triton_python_backend_utils as pb


class TritonPythonModel:
    def execute(self, requests):
        return [
            pb.InferenceResponse([self._shout(pb.get_input_tensor_by_name(request, "TEXT").as_numpy())]) for request in requests
        ]

    def _shout(self, texts):
        return pb.Tensor("SHOUT", np.array([[text.upper() for text in row] for row in texts], dtype=object))
