"""A network on CPU: the same ONNX file that ONNX Runtime's backend takes on a GPU, a bounded number of tokens at a time."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from conch_step import Tensors, Unfit
from onnxruntime import InferenceSession, SessionOptions
from onnxruntime.capi.onnxruntime_pybind11_state import InvalidArgument

TOKENS_PER_RUN = 2048  # more would only cost memory: one thread gains nothing from larger runs
SEQUENCES = 2  # dimensions, [batch, tokens]: answered once each
WINDOWS = 3  # dimensions, [batch, window, tokens]: answered token by token
Ints = npt.NDArray[np.int64]


class Network:
    """The parameter `lengths` names the input whose last entry other than zero says how long a sequence is.

    Those of like length run together, without the padding that they don't need, and empty windows not at all. `longest` is the
    most tokens that the network has positions for. Without `lengths` (heads have no sequences) a request is one run.
    """

    def __init__(self, folder: Path, parameters: dict[str, str]) -> None:
        self.session = session(folder / "model.onnx")
        self.lengths = parameters.get("lengths")
        self.longest = int(parameters.get("longest", sys.maxsize))

    def __call__(self, tensors: Tensors) -> Tensors:
        if self.lengths is None:
            return self._run(tensors)
        sequences = tensors[self.lengths]
        if sequences.shape[-1] > self.longest:
            raise Unfit(f"a sequence has at most {self.longest} tokens")
        lengths = lengths_of(sequences)
        if sequences.ndim == SEQUENCES or not lengths.any():  # a window without tokens is nobody's, a sequence is
            lengths = np.maximum(lengths, 1)
        return self._run_apart(tensors, lengths, sequences.shape)

    def _run(self, tensors: Tensors) -> Tensors:
        names = [output.name for output in self.session.get_outputs()]
        try:
            return dict(zip(names, self.session.run(names, tensors), strict=True))
        except InvalidArgument as error:
            raise Unfit("the network does not take these tensors") from error

    def _run_apart(self, tensors: Tensors, lengths: Ints, shape: tuple[int, ...]) -> Tensors:
        grids: Tensors = {}
        for rows in runs(lengths, TOKENS_PER_RUN):
            longest = lengths[rows[0]]
            part = {name: pick(tensor, shape, rows, longest) for name, tensor in tensors.items()}
            for name, answer in self._run(part).items():
                width = shape[-1] if len(shape) == WINDOWS else answer.shape[-1]
                grid = grids.setdefault(name, np.zeros((len(lengths), width), answer.dtype))
                grid[rows, : answer.shape[-1]] = answer.reshape(len(rows), -1)
        return {name: grid.reshape(*shape[:-1], grid.shape[-1]) for name, grid in grids.items()}


def lengths_of(sequences: npt.NDArray[Any]) -> Ints:
    """Up to the last entry that counts, wherever the padding lies."""
    return np.asarray((np.arange(1, sequences.shape[-1] + 1) * (sequences != 0)).max(-1).ravel())


def session(file: Path) -> InferenceSession:
    options = SessionOptions()
    options.intra_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.enable_cpu_mem_arena = False  # the arena keeps the largest run ever seen: gigabytes, for good
    return InferenceSession(str(file), options, providers=["CPUExecutionProvider"])


def runs(lengths: Ints, budget: int) -> Iterator[Ints]:
    """The rows of each run, longest first: none less than half as long as its first, within the budget once padded."""
    order = np.argsort(-lengths, kind="stable")[: np.count_nonzero(lengths)]
    while len(order):
        longest = lengths[order[0]]
        alike = np.count_nonzero(lengths[order] > (longest // 2 if longest > 16 else 0))
        count = min(alike, max(1, budget // longest))
        yield order[:count]
        order = order[count:]


def pick(tensor: npt.NDArray[Any], shape: tuple[int, ...], rows: Ints, longest: int) -> npt.NDArray[Any]:
    """Some rows of a tensor; of the sequences only as much as is needed, one window each where there are windows."""
    if tensor.shape != shape:
        return tensor[rows]
    return tensor.reshape(-1, shape[-1])[rows, :longest].reshape(len(rows), *[1] * (len(shape) - 2), longest)
