"""Small networks on top of a sentence's vector."""

import numpy as np
import numpy.typing as npt
from onnx import TensorProto

from app.local.models.graph import Graph

Array = npt.NDArray[np.float32]


def logistic(matrix: Array, bias: Array) -> bytes:
    graph = Graph()
    product = graph.add("MatMul", "product", ["vector", graph.constant("W", matrix)])
    logits = graph.add("Add", "logits", [product, graph.constant("b", bias)])
    graph.publish(graph.add("Softmax", "softmax", [logits], axis=-1), "scores")
    return _serialized(graph, "scores", *matrix.shape)


def cosines(vectors: Array) -> bytes:
    """The similarity to each row of `vectors`; all are of length 1."""
    graph = Graph()
    graph.publish(graph.add("MatMul", "product", ["vector", graph.constant("vectors_T", vectors.T)]), "scores")
    return _serialized(graph, "scores", vectors.shape[1], len(vectors))


def identity(width: int) -> bytes:
    graph = Graph()
    graph.publish("vector", "published")
    return _serialized(graph, "published", width, width)


def _serialized(graph: Graph, output: str, width: int, answers: int) -> bytes:
    float32 = TensorProto.FLOAT
    return graph.serialized("head", {"vector": (float32, ["batch", width])}, {output: (float32, ["batch", answers])})
