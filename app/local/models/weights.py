"""Weights by their Hugging Face names, out of the formats that packages carry."""

import json
import struct
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper, numpy_helper

Array = npt.NDArray[Any]
Weights = dict[str, Array]
DTYPES = {"F32": "<f4", "F16": "<f2", "I64": "<i8"}


def from_safetensors(data: bytes) -> Weights:
    (length,) = struct.unpack_from("<Q", data)
    header = json.loads(data[8 : 8 + length])
    return {name: _tensor(data, 8 + length, entry) for name, entry in header.items() if name != "__metadata__"}


def _tensor(data: bytes, start: int, entry: dict[str, Any]) -> Array:
    begin, _ = entry["data_offsets"]
    count = int(np.prod(entry["shape"]))
    return np.frombuffer(data, DTYPES[entry["dtype"]], count, start + begin).reshape(entry["shape"])


def from_quantized(data: bytes) -> Weights:
    """float32 weights out of an ONNX export whose matrices are int8 (MatMulInteger) or 4-bit (MatMulNBits)."""
    model = onnx.load_from_string(data)
    stored = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    return {
        **{name: array for name, array in stored.items() if name.endswith((".bias", ".weight"))},
        **dict(_tables(stored)),
        **dict(_matrices(model, stored)),
    }


def _tables(stored: Weights) -> Iterator[tuple[str, Array]]:
    for key, array in stored.items():
        if key.endswith("embeddings.weight_quantized"):
            name = key.removesuffix("_quantized")
            zero, scale = float(stored[f"{name}_zero_point"]), float(stored[f"{name}_scale"])
            yield name, (array.astype(np.float32) - zero) * scale


def _matrices(model: onnx.ModelProto, stored: Weights) -> Iterator[tuple[str, Array]]:
    for node in model.graph.node:
        if node.op_type == "MatMulInteger":
            yield _name(node, "_quant"), _from_int8(node, stored)
        elif node.op_type == "MatMulNBits":
            yield _name(node, "_Q4"), _from_4_bits(node, stored)


def _name(node: onnx.NodeProto, suffix: str) -> str:
    path = node.name.strip("/").removesuffix(suffix).removesuffix("/MatMul").removesuffix("/Gemm_MatMul")
    return path.replace("/", ".") + ".weight"


def _from_int8(node: onnx.NodeProto, stored: Weights) -> Array:
    matrix, zero = stored[node.input[1]], stored[node.input[3]]
    scale = stored[node.input[1].removesuffix("_quantized") + "_scale"].astype(np.float32)
    return np.ascontiguousarray(((matrix.astype(np.float32) - zero.astype(np.float32)) * scale).T)


def _from_4_bits(node: onnx.NodeProto, stored: Weights) -> Array:
    attributes = {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}
    rows, columns, block = attributes["N"], attributes["K"], attributes["block_size"]
    packed = stored[node.input[1]].reshape(rows, -1, block // 2)
    values = np.stack([packed & 15, packed >> 4], -1).reshape(rows, -1, block).astype(np.float32) - 8
    scale = stored[node.input[2]].reshape(rows, -1, 1).astype(np.float32)
    return np.reshape(values * scale, (rows, columns))
