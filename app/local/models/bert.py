"""BERT as a plain ONNX graph: standard operators in float32, pooling and heads inside, so that only small results leave it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import TensorProto

from app.local.models.graph import Graph, Shape
from app.local.models.weights import Weights

INPUTS = ("input_ids", "attention_mask", "token_type_ids")
MASKED = -10000.0  # added to the attention to padding; float16 can hold it


@dataclass(frozen=True, slots=True)
class Size:
    hidden: int
    heads: int
    layers: int
    positions: int
    epsilon: float

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> "Size":
        names = ("hidden_size", "num_attention_heads", "num_hidden_layers", "max_position_embeddings", "layer_norm_eps")
        return cls(*(config[name] for name in names))


SMALL = Size(hidden=384, heads=12, layers=12, positions=512, epsilon=1e-12)


class Encoder:
    """Adds the layers of one BERT to a graph. `prefix` is what its weights' names begin with."""

    def __init__(self, graph: Graph, weights: Weights, size: Size, prefix: str = "") -> None:
        self._graph = graph
        self._weights = weights
        self._size = size
        self._prefix = prefix

    def encode(self, ids: str, mask: str, types: str) -> tuple[str, str]:
        """The last hidden states, and the mask as float32."""
        hidden = self._normalize(self._embed(ids, types), "embeddings.LayerNorm", "emb.ln")
        as_float = self._graph.add("Cast", "mask_f", [mask], to=TensorProto.FLOAT)
        bias = self._attention_bias(mask)
        for number in range(self._size.layers):
            hidden = self._layer(hidden, bias, f"encoder.layer.{number}.", f"l{number}.")
        return hidden, as_float

    def pool(self, hidden: str) -> str:
        """BERT's own vector for a whole sequence, as its classifiers want it: the first token, through one more layer."""
        first = self._graph.add("Gather", "cls", [hidden, self._graph.constant("i0", 0)], axis=1)
        return self._graph.add("Tanh", "pooled", [self._linear(first, "pooler.dense", "pool")])

    def _embed(self, ids: str, types: str) -> str:
        add, constant = self._graph.add, self._graph.constant
        shape = add("Shape", "shape", [ids])
        length = add("Slice", "seqlen", [shape, constant("c1", [1]), constant("c2", [2])])
        all_positions = constant("position_ids", np.arange(self._size.positions, dtype=np.int64))
        positions = add("Slice", "pos", [all_positions, constant("c0", [0]), length])
        words = add("Gather", "emb.word_g", [self._weight("emb.word", "embeddings.word_embeddings.weight"), ids])
        kinds = add("Gather", "emb.type_g", [self._weight("emb.type", "embeddings.token_type_embeddings.weight"), types])
        both = add("Add", "emb.add1", [words, kinds])
        places = add("Gather", "emb.pos_g", [self._weight("emb.pos", "embeddings.position_embeddings.weight"), positions])
        return add("Add", "emb.add2", [both, places])

    def _attention_bias(self, mask: str) -> str:
        add, constant = self._graph.add, self._graph.constant
        wide = add("Unsqueeze", "mask3d", [mask, constant("ax1", [1])])
        wide = add("Unsqueeze", "mask4d", [wide, constant("ax2", [2])])
        wide = add("Cast", "mask4", [wide], to=TensorProto.FLOAT)
        inverted = add("Sub", "mask_inv", [constant("one", 1.0, np.float32), wide])
        bias = add("Mul", "mask_bias", [inverted, constant("neg", MASKED, np.float32)])
        constant("shp_heads", [0, 0, self._size.heads, self._size.hidden // self._size.heads])
        constant("shp_merge", [0, 0, self._size.hidden])
        return bias

    def _layer(self, hidden: str, bias: str, name: str, tag: str) -> str:
        add = self._graph.add
        attended = self._linear(
            self._attend(hidden, bias, name + "attention.self.", tag), name + "attention.output.dense", tag + "o"
        )
        residual = add("Add", tag + "res1", [attended, hidden])
        hidden = self._normalize(residual, name + "attention.output.LayerNorm", tag + "ln1")
        wide = self._gelu(self._linear(hidden, name + "intermediate.dense", tag + "fi"), tag)
        residual = add("Add", tag + "res2", [self._linear(wide, name + "output.dense", tag + "fo"), hidden])
        return self._normalize(residual, name + "output.LayerNorm", tag + "ln2")

    def _attend(self, hidden: str, bias: str, name: str, tag: str) -> str:
        add, constant = self._graph.add, self._graph.constant
        query = self._by_head(hidden, name + "query", tag + "q", [0, 2, 1, 3])
        key = self._by_head(hidden, name + "key", tag + "k", [0, 2, 3, 1])
        value = self._by_head(hidden, name + "value", tag + "v", [0, 2, 1, 3])
        product = add("MatMul", tag + "qk", [query, key])
        root = float(np.sqrt(self._size.hidden // self._size.heads))
        scaled = add("Div", tag + "scale", [product, constant("scale", root, np.float32)])
        masked = add("Add", tag + "masked", [scaled, bias])
        weighted = add("MatMul", tag + "av", [add("Softmax", tag + "softmax", [masked], axis=-1), value])
        return add("Reshape", tag + "or", [add("Transpose", tag + "ot", [weighted], perm=[0, 2, 1, 3]), "shp_merge"])

    def _by_head(self, hidden: str, name: str, tag: str, order: list[int]) -> str:
        split = self._graph.add("Reshape", tag + "r", [self._linear(hidden, name, tag), "shp_heads"])
        return self._graph.add("Transpose", tag + "t", [split], perm=order)

    def _gelu(self, wide: str, tag: str) -> str:
        add, constant = self._graph.add, self._graph.constant
        scaled = add("Div", tag + "g1", [wide, constant("sqrt2", float(np.sqrt(2.0)), np.float32)])
        raised = add("Add", tag + "g3", [add("Erf", tag + "g2", [scaled]), "one"])
        return add("Mul", tag + "g5", [add("Mul", tag + "g4", [wide, raised]), constant("half", 0.5, np.float32)])

    def _linear(self, x: str, name: str, tag: str) -> str:
        matrix = self._graph.constant(tag + ".weight_T", self._read(name + ".weight").T)
        bias = self._weight(tag + ".bias", name + ".bias")
        return self._graph.add("Add", tag + ".add", [self._graph.add("MatMul", tag + ".matmul", [x, matrix]), bias])

    def _normalize(self, x: str, name: str, tag: str) -> str:
        inputs = [x, self._weight(tag + ".w", name + ".weight"), self._weight(tag + ".b", name + ".bias")]
        return self._graph.add("LayerNormalization", tag, inputs, axis=-1, epsilon=self._size.epsilon)

    def _weight(self, constant: str, name: str) -> str:
        return self._graph.constant(constant, self._read(name))

    def _read(self, name: str) -> npt.NDArray[np.float32]:
        return np.asarray(self._weights[self._prefix + name], np.float32)


def embedding(weights: Weights, size: Size, pooling: str) -> bytes:
    """`pooling` is `mean` (over the tokens that the mask keeps) or `cls` (the first token); then to length 1."""
    graph = Graph()
    hidden, mask = Encoder(graph, weights, size).encode(*INPUTS)
    vector = _pool(graph, hidden, mask, pooling)
    length = graph.add("ReduceL2", "l2", [vector], axes=[-1], keepdims=1)
    floor = graph.constant("eps12", 1e-12, np.float32)
    graph.publish(graph.add("Div", "norm", [vector, graph.add("Max", "l2c", [length, floor])]), "sentence_embedding")
    outputs: dict[str, Shape] = {"sentence_embedding": (TensorProto.FLOAT, ["batch", size.hidden])}
    return graph.serialized("bert", _inputs("batch", "sequence"), outputs, producer="build_bert_onnx")


def _pool(graph: Graph, hidden: str, mask: str, pooling: str) -> str:
    # The mean is written out for both: so are the graphs whose checksums are known. ONNX Runtime drops what nothing uses.
    add, constant = graph.add, graph.constant
    column = add("Unsqueeze", "mask3", [mask, constant("axm1", [-1])])
    total = add("ReduceSum", "sum_h", [add("Mul", "masked_h", [hidden, column]), constant("ax1", [1])], keepdims=0)
    count = add("ReduceSum", "sum_m", [mask, constant("ax1", [1])], keepdims=1)
    mean = add("Div", "mean", [total, add("Max", "den", [count, constant("eps9", 1e-9, np.float32)])])
    return mean if pooling == "mean" else add("Gather", "cls", [hidden, constant("i0", 0)], axis=1)


def token_labels(weights: Weights, size: Size, prefix: str) -> bytes:
    """The best label of each token and how sure it is, for windows [batch, windows, sequence]; no logits leave the graph."""
    graph = Graph()
    add, constant = graph.add, graph.constant
    shape = add("Shape", "windows_shape", ["input_ids"])
    length = add("Slice", "window_length", [shape, constant("c2", [2]), constant("c3", [3])])
    flat = add("Concat", "flat_shape", [constant("all", [-1]), length], axis=0)
    ids, mask, types = (add("Reshape", f"flat_{name}", [name, flat]) for name in INPUTS)
    hidden, _ = Encoder(graph, weights, size, prefix).encode(ids, mask, types)
    logits = _classified(graph, weights, hidden)
    best = add("Cast", "best", [add("ArgMax", "argmax", [logits], axis=-1, keepdims=0)], to=TensorProto.INT32)
    sure = add("ReduceMax", "sure", [add("Softmax", "softmax", [logits], axis=-1)], axes=[-1], keepdims=0)
    graph.publish(add("Reshape", "labels_3d", [best, shape]), "labels")
    graph.publish(add("Reshape", "scores_3d", [sure, shape]), "scores")
    dimensions = ("batch", "windows", "sequence")
    outputs: dict[str, Shape] = {"labels": (TensorProto.INT32, dimensions), "scores": (TensorProto.FLOAT, dimensions)}
    return graph.serialized("bert", _inputs(*dimensions), outputs)


def relevance(weights: Weights, size: Size, prefix: str) -> bytes:
    """One logit for each pair of texts: the higher, the better the second answers the first."""
    graph = Graph()
    encoder = Encoder(graph, weights, size, prefix)
    hidden, _ = encoder.encode(*INPUTS)
    graph.publish(_classified(graph, weights, encoder.pool(hidden)), "score")
    outputs: dict[str, Shape] = {"score": (TensorProto.FLOAT, ["batch", 1])}
    return graph.serialized("bert", _inputs("batch", "sequence"), outputs)


def _classified(graph: Graph, weights: Weights, hidden: str) -> str:
    matrix = graph.constant("cls.weight_T", weights["classifier.weight"].astype(np.float32).T)
    product = graph.add("MatMul", "cls.matmul", [hidden, matrix])
    return graph.add("Add", "logits", [product, graph.constant("cls.bias", weights["classifier.bias"].astype(np.float32))])


def _inputs(*dimensions: str) -> dict[str, Shape]:
    return dict.fromkeys(INPUTS, (TensorProto.INT64, dimensions))
