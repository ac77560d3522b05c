"""What the tests of the models share: a way to ask Triton, and the same networks outside of it."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from onnxruntime import InferenceSession, SessionOptions
from tokenizers import Encoding, Tokenizer
from tritonclient.grpc import InferenceServerClient, InferInput, InferRequestedOutput

from tests.models.kept import Kept
from tests.peers import Served

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "model_repository"

Tensors = dict[str, npt.NDArray[Any]]
Infer = Callable[..., Tensors]
KINDS = {"int64": "INT64", "int32": "INT32", "float32": "FP32", "object": "BYTES"}


@pytest.fixture(scope="session")
def client(triton: Served) -> Iterator[InferenceServerClient]:
    client = InferenceServerClient(triton.grpc)
    yield client
    client.close()


@pytest.fixture(scope="session")
def infer(client: InferenceServerClient) -> Infer:
    return inferring(client)


@pytest.fixture(scope="session")
def ask(infer: Infer) -> Infer:
    return asking(infer)


def inferring(client: InferenceServerClient) -> Infer:
    """`infer(model, {"TEXT": array}, outputs=None)`: all outputs by name, or those that are named."""

    def infer(model: str, tensors: Tensors, outputs: Sequence[str] | None = None, **options: Any) -> Tensors:
        inputs = [InferInput(name, array.shape, KINDS[array.dtype.name]) for name, array in tensors.items()]
        for tensor, array in zip(inputs, tensors.values(), strict=True):
            tensor.set_data_from_numpy(array)
        requested = [InferRequestedOutput(name) for name in outputs] if outputs else None
        result = client.infer(model, inputs, outputs=requested, client_timeout=60, **options)
        return {output.name: result.as_numpy(output.name) for output in result.get_response().outputs}

    return infer


def asking(infer: Infer) -> Infer:
    """`ask(model, ["a text", ...])`"""
    return lambda model, texts, outputs=None, **options: infer(model, {"TEXT": tensor_of(texts)}, outputs, **options)


def tensor_of(texts: Sequence[str | bytes]) -> npt.NDArray[np.object_]:
    return np.array([[text.encode() if isinstance(text, str) else text] for text in texts], np.object_)


class Outside:
    """The networks of a built repository, run here: one text at a time, without padding, without Triton."""

    def __init__(self, models: Path) -> None:
        self._models = models
        self._sessions: dict[str, InferenceSession] = {}

    def vector(self, family: str, text: str, max_tokens: int) -> npt.NDArray[np.float32]:
        tokenizer = self._tokenizer(family)
        tokenizer.enable_truncation(max_tokens)
        return np.asarray(self.run(f"{family}-encoder", _tensors(tokenizer.encode(text)))[0])

    def relevance(self, query: str, document: str) -> float:
        """By the tokenizer's own way to join a pair, and to cut its second text."""
        tokenizer = self._tokenizer("reranker")
        tokenizer.enable_truncation(512, strategy="only_second")
        return float(self.run("reranker-network", _tensors(tokenizer.encode(query, document)))[0, 0])

    def _tokenizer(self, family: str) -> Tokenizer:
        tokenizer = Tokenizer.from_file(str(self._models / f"{family}-tokenizer" / "1" / "tokenizer.json"))
        tokenizer.no_padding()
        return tokenizer

    def head(self, name: str, vector: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        return np.asarray(self.run(f"{name}-head", {"vector": vector[None]})[0])

    def run(self, model: str, tensors: Tensors) -> npt.NDArray[Any]:
        if model not in self._sessions:
            self._sessions[model] = session(str(self._models / model / "1" / "model.onnx"))
        return np.asarray(self._sessions[model].run(None, tensors)[0])


def session(network: str | bytes) -> InferenceSession:
    """On one thread: several spin while they wait for each other, and other tests need the processors."""
    options = SessionOptions()
    options.intra_op_num_threads = 1
    return InferenceSession(network, options, providers=["CPUExecutionProvider"])


def _tensors(encoding: Encoding) -> Tensors:
    lists = {"input_ids": encoding.ids, "attention_mask": encoding.attention_mask, "token_type_ids": encoding.type_ids}
    return {name: np.array([numbers], np.int64) for name, numbers in lists.items()}


@pytest.fixture(scope="session")
def kept(home: Path) -> Kept:
    return Kept(home)


@pytest.fixture(scope="session")
def outside(models: Path) -> Outside:
    return Outside(models)
