"""A route against what Triton says of its model."""

import json
from typing import Any

import pytest
from tritonclient.grpc import model_config_pb2 as config_pb

from app.routing.chart import _File
from app.routing.contract import Mismatch, bind
from app.routing.route import Route
from app.triton.model import Model
from app.triton.tensor import TensorSpec
from tests.fakes.triton import REMARKS, TEXT, Tensors, model

LABELS = {"labels": json.dumps(["red", "green", "blue"])}
SCORES = {"SCORES": ("FP32", (3,))}
SCORE, VECTOR = {"SCORE": ("FP32", (1,))}, {"EMBEDDING": ("FP32", (8,))}
PAIR = {**TEXT, "QUERY": ("BYTES", (1,))}
SPANS = {"SPANS": ("INT32", (-1, 3)), "SPAN_SCORES": ("FP32", (-1,))}


def route(**members: Any) -> Route:
    section = {"task": "classify", "targets": [{"ensemble": "m"}], **members}
    return _File.model_validate({"routes": {"r": section}}).routes["r"].declared("r")


MATCHING: dict[str, tuple[Route, config_pb.ModelConfig, set[str]]] = {
    "its own names in capitals": (
        route(),
        model("m", {**SCORES, **REMARKS}, parameters=LABELS),
        {"scores", "tokens", "truncated", "error"},
    ),
    "without remarks": (route(), model("m", SCORES, parameters=LABELS), {"scores"}),
    "other names": (
        route(tensors={"text": "q", "scores": "p"}, labels=["a", "b"]),
        model("m", {"p": ("FP64", (2,)), "z": ("FP16", (9, 9))}, inputs={"q": ("BYTES", (-1,))}),
        {"scores"},
    ),
    "a head of its own": (
        route(task="analyze", tensors={"mood": "M", "embedding": "E"}, labels={"mood": ["x", "y"]}),
        model("m", {"M": ("FP32", (2,)), "E": ("FP32", (8,))}),
        {"mood", "embedding"},
    ),
    "heads by their names": (
        route(task="analyze"),
        model("m", {"MOOD": ("FP32", (2,)), **REMARKS}, parameters={"labels.mood": '["x","y"]'}),
        {"mood", "tokens", "truncated", "error"},
    ),
    "spans": (route(task="entities", labels=["name"]), model("m", SPANS), {"spans", "span_scores"}),
    "a query beside each text": (route(task="rerank"), model("m", SCORE, inputs=PAIR), {"score"}),
    "a query of another name": (
        route(task="rerank", tensors={"text": "passage", "query": "question", "score": "p"}),
        model("m", {"p": ("FP64", (1,))}, inputs={"question": ("BYTES", (1,)), "passage": ("BYTES", (1,))}),
        {"score"},
    ),
    "any tensors, by their own names": (
        route(task="infer"),
        model("m", {"out": ("BF16", (-1, 4)), "more": ("BYTES", (1,))}, inputs={"a": ("INT64", (-1,)), "b": ("BOOL", (2,))}),
        {"out", "more"},
    ),
    "vectors that may be cut": (route(task="embeddings", dimensions=[4, 8]), model("m", VECTOR), {"embedding"}),
}


@pytest.mark.parametrize(("declared", "config", "roles"), MATCHING.values(), ids=MATCHING)
def test_a_route_that_fits_its_model_is_bound(declared: Route, config: config_pb.ModelConfig, roles: set[str]) -> None:
    ensemble = bind(declared, Model.of(config))
    assert set(ensemble.outputs) == roles
    assert (ensemble.name, ensemble.max_batch) == ("m", 64)


@pytest.mark.parametrize("max_batch", [0, 8])
def test_a_model_of_any_task_keeps_its_whole_signature(max_batch: int) -> None:
    config = model("m", {"out": ("FP16", (4,)), "rest": ("INT8", (1,))}, inputs={"a": ("INT64", (-1,))}, max_batch=max_batch)
    config.input[0].optional = True
    signature = bind(route(task="infer"), Model.of(config, ("1", "3"))).signature
    assert (signature.max_batch, signature.versions) == (max_batch, ("1", "3"))
    assert signature.inputs == (TensorSpec("a", "INT64", (-1,), optional=True),)
    assert [spec.name for spec in signature.outputs] == ["out", "rest"]


@pytest.mark.parametrize(
    "changed", [{"out": ("FP32", (5,))}, {"out": ("FP16", (4,))}, {"out": ("FP32", (4,)), "more": ("BOOL", (1,))}]
)
def test_two_models_of_other_tensors_can_not_serve_for_each_other(changed: Tensors) -> None:
    first, second = [bind(route(task="infer"), Model.of(model("m", outputs))) for outputs in ({"out": ("FP32", (4,))}, changed)]
    assert first != second


def test_a_model_that_keeps_sequences_is_served_by_no_route() -> None:
    config = model("m", SCORES, parameters=LABELS)
    config.sequence_batching.SetInParent()
    for declared in (route(), route(task="infer")):
        with pytest.raises(Mismatch, match="keeps sequences"):
            bind(declared, Model.of(config))


MISMATCHING: dict[str, tuple[Route, config_pb.ModelConfig, str]] = {
    "another datatype of the scores": (
        route(),
        model("m", {"SCORES": ("INT32", (3,))}, parameters=LABELS),
        "must be FP32 or FP64 [n], and is INT32 [3]",
    ),
    "scores of no fixed number": (route(), model("m", {"SCORES": ("FP32", (-1,))}, parameters=LABELS), "is FP32 [-1]"),
    "scores of two dimensions": (route(), model("m", {"SCORES": ("FP32", (1, 3))}, parameters=LABELS), "is FP32 [1,3]"),
    "no scores": (route(), model("m", REMARKS, parameters=LABELS), "there is no output SCORES"),
    "a named output that is not there": (
        route(tensors={"scores": "P"}),
        model("m", SCORES, parameters=LABELS),
        "there is no output P for the role scores; the model has SCORES",
    ),
    "decoupled": (route(), model("m", SCORES, parameters=LABELS, decoupled=True), "decoupled"),
    "no batching": (route(), model("m", SCORES, parameters=LABELS, max_batch=0), "does not batch"),
    "fewer labels than scores": (route(labels=["a", "b"]), model("m", SCORES), "2 labels for 3 scores"),
    "no labels": (route(), model("m", SCORES), "no labels for the role scores"),
    "labels that are no list": (route(), model("m", SCORES, parameters={"labels": '{"a": 1}'}), "no labels"),
    "labels that are no JSON": (route(), model("m", SCORES, parameters={"labels": "red, green"}), "no labels"),
    "no text": (
        route(),
        model("m", SCORES, inputs={"WORDS": ("BYTES", (1,))}, parameters=LABELS),
        "there is no input TEXT; the model has WORDS",
    ),
    "a text of another datatype": (
        route(),
        model("m", SCORES, inputs={"TEXT": ("INT64", (-1,))}, parameters=LABELS),
        "must be BYTES [1], and is INT64 [-1]",
    ),
    "two texts at once": (route(), model("m", SCORES, inputs={"TEXT": ("BYTES", (2,))}, parameters=LABELS), "is BYTES [2]"),
    "an input that nobody fills": (
        route(),
        model("m", SCORES, inputs={**TEXT, "TOP_K": ("INT32", (1,))}, parameters=LABELS),
        "inputs that no role fills: TOP_K",
    ),
    "no query": (route(task="rerank"), model("m", SCORE), "there is no input QUERY; the model has TEXT"),
    "a query of another datatype": (
        route(task="rerank"),
        model("m", SCORE, inputs={**TEXT, "QUERY": ("FP32", (8,))}),
        "the input QUERY must be BYTES [1], and is FP32 [8]",
    ),
    "a query that the task does not have": (
        route(),
        model("m", SCORES, inputs=PAIR, parameters=LABELS),
        "inputs that no role fills: QUERY",
    ),
    "several scores of a pair": (route(task="rerank"), model("m", {"SCORE": ("FP32", (2,))}, inputs=PAIR), "is FP32 [2]"),
    "vectors that are shorter than what they may be cut to": (
        route(task="embeddings", dimensions=[4, 9]),
        model("m", VECTOR),
        "vectors can't be cut to 9 numbers: they have 8",
    ),
    "tokens of another datatype": (
        route(),
        model("m", {**SCORES, "TOKENS": ("FP32", (1,))}, parameters=LABELS),
        "the output TOKENS can't be the role tokens",
    ),
    "a vector of half numbers": (route(task="embeddings"), model("m", {"EMBEDDING": ("FP16", (8,))}), "is FP16 [8]"),
    "spans of another width": (
        route(task="entities", labels=["a"]),
        model("m", {**SPANS, "SPANS": ("INT32", (-1, 2))}),
        "must be INT32 or INT64 [-1,3], and is INT32 [-1,2]",
    ),
    "nothing but remarks": (route(task="analyze"), model("m", REMARKS), "no output but remarks"),
}


@pytest.mark.parametrize(("declared", "config", "fault"), MISMATCHING.values(), ids=MISMATCHING)
def test_a_route_that_does_not_fit_says_why(declared: Route, config: config_pb.ModelConfig, fault: str) -> None:
    with pytest.raises(Mismatch) as raised:
        bind(declared, Model.of(config))
    assert fault in str(raised.value)


def test_every_fault_is_told_at_once() -> None:
    with pytest.raises(Mismatch) as raised:
        bind(route(), Model.of(model("m", {}, inputs={}, max_batch=0, decoupled=True)))
    assert len(raised.value.faults) == 4


QUEUE = "default_queue_policy { timeout_action: REJECT default_timeout_microseconds: 1000000 allow_timeout_override: true }"
LEVELS = "priority_levels: 3 default_priority_level: 2"
NO_TIMEOUTS, NO_PRIORITIES = "ignores the timeouts", "ignores the priorities"
QUEUES: dict[str, tuple[str, list[str]]] = {
    "all that is sent": (f"dynamic_batching {{ {QUEUE} {LEVELS} }}", []),
    "no batcher": ("", [NO_TIMEOUTS, NO_PRIORITIES]),
    "no policy": ("dynamic_batching { }", [NO_TIMEOUTS, NO_PRIORITIES]),
    "no priorities": (f"dynamic_batching {{ {QUEUE} }}", [NO_PRIORITIES]),
    "one level only": (f"dynamic_batching {{ {QUEUE} priority_levels: 1 default_priority_level: 1 }}", [NO_PRIORITIES]),
    "no timeout of its own": (
        f"dynamic_batching {{ default_queue_policy {{ allow_timeout_override: true }} {LEVELS} }}",
        [NO_TIMEOUTS],
    ),
    "a timeout that no request may shorten": (
        f"dynamic_batching {{ default_queue_policy {{ default_timeout_microseconds: 1 }} {LEVELS} }}",
        [NO_TIMEOUTS],
    ),
    "a level with a policy of its own, without": (
        f"dynamic_batching {{ {QUEUE} {LEVELS} priority_queue_policy {{ key: 3 value {{ max_queue_size: 9 }} }} }}",
        [NO_TIMEOUTS],
    ),
}


def step(name: str, rest: str = "", batch: int = 8) -> Model:
    return Model.parse(f'name: "{name}" max_batch_size: {batch} {rest}')


@pytest.mark.parametrize(("queue", "remarks"), QUEUES.values(), ids=QUEUES)
def test_a_member_that_ignores_what_is_sent_is_remarked_upon(queue: str, remarks: list[str]) -> None:
    config = model("m", SCORES, parameters=LABELS)
    for name in ("a", "a", "gone"):
        config.ensemble_scheduling.step.add(model_name=name, model_version=1)
    ensemble = bind(route(), Model.of(config), {"a": step("a", queue)})
    assert len(ensemble.remarks) == len(remarks)
    for said, expected in zip(ensemble.remarks, remarks, strict=True):
        assert said.startswith(f"a {expected}")


CPU = "instance_group { kind: KIND_CPU count: 3 }"
TWO_GPUS = "instance_group { kind: KIND_GPU count: 2 gpus: [0, 1] } instance_group { kind: KIND_CPU count: 1 }"
PASSIVE = "instance_group { kind: KIND_CPU count: 3 } instance_group { kind: KIND_CPU count: 5 passive: true }"
CAPACITIES: dict[str, tuple[list[Model], int]] = {
    "the narrowest member": ([step("a", CPU, 8), step("b", CPU, 4), step("c", CPU, 64)], 12),
    "a member that does not batch": ([step("a", CPU, 0), step("b", CPU)], 3),
    "instances on each GPU": ([step("a", TWO_GPUS, 8)], 40),
    "passive instances": ([step("a", PASSIVE, 1)], 3),
    "a member that is not known": ([step("a", CPU)], 0),
}


@pytest.mark.parametrize(("members", "capacity"), CAPACITIES.values(), ids=CAPACITIES)
def test_an_ensemble_computes_as_much_at_once_as_its_narrowest_member(members: list[Model], capacity: int) -> None:
    config = model("m", SCORES, parameters=LABELS)
    for name in [member.name for member in members] if capacity else ["a", "gone"]:
        config.ensemble_scheduling.step.add(model_name=name, model_version=1)
    assert bind(route(), Model.of(config), {member.name: member for member in members}).capacity == capacity


def test_a_model_that_is_no_ensemble_is_its_own_only_member() -> None:
    config = model("m", SCORES, parameters=LABELS, max_batch=4)
    config.instance_group.add(count=2)
    assert bind(route(), Model.of(config)).capacity == 8
    assert len(bind(route(), Model.of(config)).remarks) == 2


def test_how_much_it_computes_makes_no_ensemble_another_one() -> None:
    small, large = (model("m", SCORES, parameters=LABELS) for _ in range(2))
    large.instance_group.add(count=9)
    assert bind(route(), Model.of(small)) == bind(route(), Model.of(large))
