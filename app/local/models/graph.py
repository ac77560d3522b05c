"""ONNX graphs, written node by node: numpy and onnx alone, so the same input gives the same bytes every time."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper, numpy_helper

Dimension = int | str
OPSET = 17
IR_VERSION = 8


class Graph:
    """Every node is named, and its one output is called after it."""

    def __init__(self) -> None:
        self._nodes: list[onnx.NodeProto] = []
        self._constants: dict[str, onnx.TensorProto] = {}

    def constant(self, name: str, value: npt.ArrayLike, dtype: npt.DTypeLike = None) -> str:
        if name not in self._constants:
            self._constants[name] = numpy_helper.from_array(np.array(value, dtype, order="C"), name)
        return name

    def add(self, operation: str, name: str, inputs: Sequence[str], **attributes: Any) -> str:
        output = f"{name}_o"
        self._nodes.append(helper.make_node(operation, inputs, [output], name=name, **attributes))
        return output

    def publish(self, tensor: str, name: str) -> None:
        self._nodes.append(helper.make_node("Identity", [tensor], [name], name=f"out_{name}"))

    def serialized(
        self, name: str, inputs: Mapping[str, "Shape"], outputs: Mapping[str, "Shape"], producer: str = "conch"
    ) -> bytes:
        graph = helper.make_graph(self._nodes, name, _infos(inputs), _infos(outputs), list(self._constants.values()))
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], producer_name=producer)
        model.ir_version = IR_VERSION
        onnx.checker.check_model(model)
        return bytes(model.SerializeToString(deterministic=True))


Shape = tuple[int, Sequence[Dimension]]
"""The element type and the dimensions of a tensor; a name stands for a dimension that varies."""


def _infos(shapes: Mapping[str, Shape]) -> list[onnx.ValueInfoProto]:
    return [helper.make_tensor_value_info(name, kind, list(dimensions)) for name, (kind, dimensions) in shapes.items()]
