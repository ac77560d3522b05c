"""What a model's tensors are taken for."""

import pytest
import yaml

from app.routing.draft import _drafted
from app.triton.model import Model
from tests.fakes.triton import REMARKS, Tensors, model

TEXTS: Tensors = dict.fromkeys(("passage", "user_query", "other"), ("BYTES", (1,)))
NUMBERS: Tensors = {"ids": ("INT64", (-1,))}
SCORE: Tensors = {"relevance": ("FP32", (1,))}


def drafted(inputs: Tensors, outputs: Tensors) -> str:
    return "".join(_drafted(Model.of(model("m", outputs, inputs=inputs)), is_step=False))


def pick(*names: str) -> Tensors:
    return {name: TEXTS[name] for name in names}


@pytest.mark.parametrize("names", [("passage", "user_query"), ("user_query", "passage")])
def test_a_text_and_a_query_with_one_score_are_a_reranker(names: tuple[str, ...]) -> None:
    section = yaml.safe_load(drafted(pick(*names), {**SCORE, **REMARKS}))["m"]
    assert section["task"] == "rerank"
    remarks = {"tokens": "TOKENS", "truncated": "TRUNCATED", "error": "ERROR"}
    assert section["tensors"] == {"text": "passage", "query": "user_query", "score": "relevance", **remarks}


@pytest.mark.parametrize(
    ("inputs", "outputs", "reason"),
    [
        (pick("passage", "other"), SCORE, "its input is not one text"),
        (pick("passage", "user_query", "other"), SCORE, "its input is not one text"),
        ({**pick("passage"), **NUMBERS}, SCORE, "its input is not one text"),
        (pick("passage", "user_query"), {"logits": ("FP32", (2,))}, "none of its outputs"),
        (pick("passage"), SCORE, "none of its outputs"),
    ],
)
def test_what_fits_no_task_is_left_out(inputs: Tensors, outputs: Tensors, reason: str) -> None:
    assert drafted(inputs, outputs).startswith(f"  # m: left out; {reason}")
