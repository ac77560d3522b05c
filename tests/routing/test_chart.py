"""`routes.yaml`, and what is said of one that can't be used."""

from pathlib import Path

import pytest

from app.routing.chart import RoutesInvalid, read_chart
from tests.gateway.process import ROOT

ONE = "routes: {r: {task: classify, targets: [{ensemble: m}]}}"
FAULTS = {
    "nothing": ("", "file"),
    "no YAML": ("routes: [", "not YAML"),
    "a list": ("- a", "file"),
    "no routes": ("{}", "routes"),
    "an unknown section": (ONE + "\nextra: 1", "extra"),
    "an unknown member": ("routes: {r: {task: classify, targets: [{ensemble: m}], colour: red}}", "routes.r.colour"),
    "an unknown task": ("routes: {r: {task: translate, targets: [{ensemble: m}]}}", "routes.r.task"),
    "no target": ("routes: {r: {task: classify, targets: []}}", "routes.r.targets"),
    "no weight": ("routes: {r: {task: classify, targets: [{ensemble: m, weight: 0}]}}", "at least one weight"),
    "a weight below 0": ("routes: {r: {task: classify, targets: [{ensemble: m, weight: -1}]}}", "weight"),
    "an ensemble with a path": ("routes: {r: {task: classify, targets: [{ensemble: ../m}]}}", "ensemble"),
    "a name with a blank": ("routes: {'a b': {task: classify, targets: [{ensemble: m}]}}", "a b"),
    "a role that the task lacks": (
        "routes: {r: {task: classify, targets: [{ensemble: m}], tensors: {scores: S, spans: X}}}",
        "has no role spans",
    ),
    "a role that is missing": (
        "routes: {r: {task: entities, targets: [{ensemble: m}], tensors: {spans: S}}}",
        "needs the role span_scores",
    ),
    "a default above the maximum": (
        "routes: {r: {task: classify, targets: [{ensemble: m}], timeout_ms: {default: 9, max: 3}}}",
        "default must not exceed max",
    ),
    "a limit of nothing": ("routes: {r: {task: classify, targets: [{ensemble: m}], limits: {inputs: 0}}}", "limits.inputs"),
    "a query where the task has none": (
        "routes: {r: {task: classify, targets: [{ensemble: m}], tensors: {scores: S, query: Q}}}",
        "has no role query",
    ),
    "dimensions of what is no vector": (
        "routes: {r: {task: classify, targets: [{ensemble: m}], dimensions: any}}",
        "no vectors that can be cut",
    ),
    "dimensions of nothing": ("routes: {r: {task: embeddings, targets: [{ensemble: m}], dimensions: [0]}}", "dimensions"),
    "dimensions of another word": ("routes: {r: {task: embeddings, targets: [{ensemble: m}], dimensions: all}}", "dimensions"),
    "roles where every tensor has its own name": (
        "routes: {r: {task: infer, targets: [{ensemble: m}], tensors: {text: T}}}",
        "has no role text",
    ),
    "labels where there are no scores": (
        "routes: {r: {task: infer, targets: [{ensemble: m}], labels: [a]}}",
        "the task infer has none",
    ),
    "a list of labels for several heads": (
        "routes: {r: {task: analyze, targets: [{ensemble: m}], labels: [a]}}",
        "a list for each head",
    ),
}


@pytest.mark.parametrize(("text", "fault"), FAULTS.values(), ids=FAULTS)
def test_a_file_that_can_not_be_used_says_where_and_why(tmp_path: Path, text: str, fault: str) -> None:
    file = tmp_path / "routes.yaml"
    file.write_text(text)
    with pytest.raises(RoutesInvalid) as raised:
        read_chart(file)
    assert all(str(file) in line for line in raised.value.faults)
    assert any(fault in line for line in raised.value.faults), raised.value.faults


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(RoutesInvalid, match="No such file"):
        read_chart(tmp_path / "routes.yaml")


def test_bytes_that_are_no_text_are_no_yaml(tmp_path: Path) -> None:
    file = tmp_path / "routes.yaml"
    file.write_bytes(b"\xff\xfe\x00routes")
    with pytest.raises(RoutesInvalid, match="not YAML"):
        read_chart(file)


def test_a_member_that_stands_twice_is_a_fault(tmp_path: Path) -> None:
    file = tmp_path / "routes.yaml"
    file.write_text(
        "routes:\n  r: {task: classify, targets: [{ensemble: a}]}\n  r: {task: classify, targets: [{ensemble: b}]}\n"
    )
    with pytest.raises(RoutesInvalid, match="twice"):
        read_chart(file)


def test_the_smallest_route_has_sane_defaults(tmp_path: Path) -> None:
    file = tmp_path / "routes.yaml"
    file.write_text(ONE)
    route = read_chart(file)["r"]
    assert (route.caps.inputs, route.caps.characters, route.caps.allow_empty) == (256, 200_000, False)
    assert (route.timeout, route.timeout_max, route.required) == (2.0, 10.0, False)


@pytest.mark.parametrize("file", [ROOT / "config" / "routes.yaml", ROOT / "tests" / "gateway" / "routes.yaml"])
def test_the_files_that_come_with_conch_can_be_used(file: Path) -> None:
    assert read_chart(file)
