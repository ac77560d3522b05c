"""How Triton runs a step: a callable from named arrays to named arrays, for one request at a time."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy.typing as npt

Tensors = dict[str, npt.NDArray[Any]]
Step = Callable[[Tensors], Tensors]


class Unfit(ValueError):
    """These tensors can't be computed, and it is the caller's fault. The words reach the caller."""


def served(build: Callable[[Path, dict[str, str]], Step]) -> type:
    """The class that Triton looks for in a `model.py`.

    `build` gets the folder of the model's version and the string parameters of its config.
    """
    # Only Triton's own process has this module; without it a step can still be imported and called.
    import triton_python_backend_utils as triton  # type: ignore[import-not-found]

    class TritonPythonModel:
        def initialize(self, args: dict[str, str]) -> None:
            config = json.loads(args["model_config"])
            parameters = {name: value["string_value"] for name, value in config["parameters"].items()}
            self.name = args["model_name"]
            self.step = build(Path(args["model_repository"], args["model_version"]), parameters)

        def execute(self, requests: list[Any]) -> list[Any]:
            return [self.answer(request) for request in requests]

        def answer(self, request: Any) -> Any:
            try:
                tensors = self.step({tensor.name(): tensor.as_numpy() for tensor in request.inputs()})
            except Unfit as unfit:
                return refused(str(unfit), triton.TritonError.INVALID_ARG)
            except Exception as error:  # noqa: BLE001  one request must not fail its whole batch, and Triton would send the traceback
                triton.Logger.log_error(f"{self.name}: {place(error)}")
                return refused("the step failed", triton.TritonError.INTERNAL)
            return triton.InferenceResponse([triton.Tensor(name, array) for name, array in tensors.items()])

    def refused(words: str, code: int) -> Any:
        return triton.InferenceResponse(error=triton.TritonError(words, code))

    return TritonPythonModel


def place(error: Exception) -> str:
    """The kind of an error and the line it came from: its own words could hold a text."""
    trace = error.__traceback__
    while trace and trace.tb_next:
        trace = trace.tb_next
    where = f"{Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}" if trace else "an unknown place"
    return f"{type(error).__name__} at {where}"
