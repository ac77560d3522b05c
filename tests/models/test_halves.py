"""Networks in half precision: the same bytes each time, and nearly the same answers, computed on a CPU."""

import json
import os
import shutil
from collections.abc import Callable
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from google.protobuf import text_format
from tokenizers import Tokenizer
from tritonclient.grpc.model_config_pb2 import ModelConfig

from app.local.models.assets import HALVES
from app.local.models.half import FILE, half
from app.local.models.repository import build
from app.local.models.source import Source
from tests.models.conftest import ROOT, SOURCE, session
from tests.models.kept import Kept

CHECKSUMS = Source(SOURCE).checksums()
TOKENIZERS = {name: name.split("-")[0] + "-tokenizer" for name in (asset.path.split("/")[0] for asset in HALVES)}
LONG = (
    "The committee of the city of Lyon met on Tuesday, and Marie Dupont spoke about the new hospital at 12 Rue de la Paix. " * 8
)
SENTENCES = json.loads((ROOT / "tests" / "models" / "iab_sentences.json").read_text())
TEXTS = [*(sentence["text"] for sentence in SENTENCES[:6]), "Call Jane Doe.", "?", LONG]

Outputs = list[npt.NDArray[Any]]


class Pair:
    """A network as it is, and its half made of it."""

    def __init__(self, models: Path, name: str, kept: Kept) -> None:
        self.name = name
        self._kept = kept
        self._whole = (models / name / "1" / "model.onnx").read_bytes()
        self._tokenizer = Tokenizer.from_file(str(models / TOKENIZERS[name] / "1" / "tokenizer.json"))
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(256)

    @cached_property
    def half(self) -> bytes:
        return self._kept.get(f"{self.name}/1/{FILE}", lambda: half(self._whole))

    def answers(self) -> list[tuple[Outputs, Outputs]]:
        whole, small = session(self._whole), session(self.half)
        return [(whole.run(None, tensors), small.run(None, tensors)) for tensors in map(self._tensors, TEXTS)]

    def _tensors(self, text: str) -> dict[str, npt.NDArray[np.int64]]:
        encoding = (
            self._tokenizer.encode("what is the city?", text) if "reranker" in self.name else self._tokenizer.encode(text)
        )
        lists = {"input_ids": encoding.ids, "attention_mask": encoding.attention_mask, "token_type_ids": encoding.type_ids}
        windows = (1, 1, -1) if self.name == "pii-network" else (1, -1)
        return {name: np.array(numbers, np.int64).reshape(windows) for name, numbers in lists.items()}


@pytest.fixture(scope="module")
def pair(models: Path, kept: Kept) -> Callable[[str], Pair]:
    pairs: dict[str, Pair] = {}
    return lambda name: pairs.setdefault(name, Pair(models, name, kept))


@pytest.mark.parametrize("name", TOKENIZERS)
def test_a_half_comes_out_byte_for_byte_and_is_half_as_large(pair: Callable[[str], Pair], name: str, models: Path) -> None:
    data = pair(name).half
    assert sha256(data).hexdigest() == CHECKSUMS[f"{name}/1/model.fp16.onnx"]
    assert len(data) < 0.51 * (models / name / "1" / "model.onnx").stat().st_size


@pytest.mark.parametrize("name", ["minilm-encoder", "bge-encoder"])
def test_a_vector_of_half_precision_points_where_the_whole_one_does(pair: Callable[[str], Pair], name: str) -> None:
    for (whole,), (small,) in pair(name).answers():
        assert small.dtype == np.float32
        assert float((whole * small).sum()) > 0.9999
        assert float(np.abs(whole - small).max()) < 1e-3


def test_relevance_of_half_precision_is_within_a_hundredth_of_its_range(pair: Callable[[str], Pair]) -> None:
    scores = np.array([(whole.item(), small.item()) for (whole,), (small,) in pair("reranker-network").answers()])
    assert np.abs(scores[:, 0] - scores[:, 1]).max() < 0.05
    assert list(np.argsort(scores[:, 0])) == list(np.argsort(scores[:, 1]))


def test_personal_data_is_marked_alike_in_half_precision(pair: Callable[[str], Pair]) -> None:
    for (labels, sure), (small_labels, small_sure) in pair("pii-network").answers():
        assert np.array_equal(labels, small_labels)
        assert float(np.abs(sure - small_sure).max()) < 0.01


@pytest.mark.parametrize("name", TOKENIZERS)
def test_the_variant_differs_from_production_in_the_file_that_it_names(name: str) -> None:
    production, variant = (
        text_format.Parse((SOURCE / name / file).read_text(), ModelConfig()) for file in ("config.pbtxt", "configs/fp16.pbtxt")
    )
    assert f"{name}/1/{variant.default_model_filename}" in {asset.path for asset in HALVES}
    variant.ClearField("default_model_filename")
    assert variant == production


def test_a_build_makes_halves_where_they_are_asked_for_and_none_else(
    pair: Callable[[str], Pair], home: Path, tmp_path: Path
) -> None:
    other, requirements = tmp_path / "home", ROOT / "requirements" / "models.txt"
    shutil.copytree(home / "build", other / "build", copy_function=os.link)
    (other / "wheels").symlink_to(home / "wheels")
    for asset in HALVES:
        name = asset.path.split("/")[0]
        if name != "pii-network":  # one is made by its recipe, and the others are there from a build before
            (other / "build" / CHECKSUMS[asset.path]).write_bytes(pair(name).half)
    halves = {asset.path for asset in HALVES}
    for asked, there in ((True, halves), (False, set()), (True, halves)):
        built = build(SOURCE, other, requirements, halves=asked)
        assert {path.relative_to(built).as_posix() for path in built.glob("*/1/model.fp16.onnx")} == there
