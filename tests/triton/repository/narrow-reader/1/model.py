import numpy as np
import triton_python_backend_utils as pb_utils


def seconds(text):
    try:
        return float(text)
    except ValueError:
        return 0.0


class TritonPythonModel:
    def execute(self, requests):
        texts = [pb_utils.get_input_tensor_by_name(request, "TEXT").as_numpy() for request in requests]
        read = [np.array([[seconds(text)] for text in batch.ravel()], np.float32) for batch in texts]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("SECONDS", values)]) for values in read]
