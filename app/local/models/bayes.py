"""py3langid's naive Bayes as an ONNX graph, and the automaton that finds its features."""

import io
import lzma
import zipfile
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import TensorProto

from app.local.models.graph import Graph, Shape

Tables = dict[str, npt.NDArray[Any]]


def tables(data: bytes) -> Tables:
    with np.load(io.BytesIO(lzma.decompress(data)), allow_pickle=False) as stored:
        return dict(stored)


def automaton(tables: Tables) -> bytes:
    """An npz file, but not by `np.savez`, whose zip headers differ between Python 3.11.2 and 3.11.7."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name in ("nextmove", "nextmove_row", "out_feat"):
            array = io.BytesIO()
            np.save(array, tables[name], allow_pickle=False)
            archive.writestr(zipfile.ZipInfo(f"{name}.npy"), array.getvalue())
    return file.getvalue()


def labels(tables: Tables) -> list[str]:
    """A language can have several classes (scripts); it is listed once, where it first occurs."""
    return list(dict.fromkeys(tables["classes"].tolist()))


def bayes(tables: Tables) -> bytes:
    """The languages' probabilities from a text's features: their ids, how often each occurs, and 1 / sqrt(bytes of the text).

    What fills up a sequence has count 0, and the logarithm of 0 + 1 weighs nothing. Without any feature all classes are equal.
    """
    graph = Graph()
    add, constant = graph.add, graph.constant
    rows = add("Gather", "rows_16", [constant("ptc", tables["ptc"].astype(np.float16)), "feature_ids"], axis=0)
    rows = add("Cast", "rows", [rows], to=TensorProto.FLOAT)
    weight = add("Log", "log", [add("Add", "plus_one", ["counts", constant("one", 1.0, np.float32)])])
    middle = constant("middle", [1])
    likelihood = add("MatMul", "product", [add("Unsqueeze", "weight_row", [weight, middle]), rows])
    likelihood = add("Squeeze", "likelihood", [likelihood, middle])
    found = add("Sign", "found", [add("ReduceSum", "total", ["counts", middle], keepdims=1)])
    prior = add("Mul", "prior", [found, constant("pc", tables["pc"].astype(np.float32))])
    scaled = add("Mul", "scaled", [add("Add", "posterior", [likelihood, prior]), "inv_sqrt_bytes"])
    classes = add("Softmax", "classes", [scaled], axis=-1)
    graph.publish(add("MatMul", "languages", [classes, constant("fold", _fold(tables))]), "probabilities")
    return graph.serialized("bayes", _inputs(), {"probabilities": (TensorProto.FLOAT, ["batch", len(labels(tables))])})


def _fold(tables: Tables) -> npt.NDArray[np.float32]:
    names = labels(tables)
    return np.array([[name == label for label in names] for name in tables["classes"].tolist()], np.float32)


def _inputs() -> dict[str, Shape]:
    return {
        "feature_ids": (TensorProto.INT64, ["batch", "features"]),
        "counts": (TensorProto.FLOAT, ["batch", "features"]),
        "inv_sqrt_bytes": (TensorProto.FLOAT, ["batch", 1]),
    }
