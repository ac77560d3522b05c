"""All variants of every model's config, parsed by Triton's own schema and held against each other."""

import json
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import pytest
from google.protobuf import text_format
from tritonclient.grpc.model_config_pb2 import ModelConfig, ModelInput, ModelOutput

from app.local.models.source import Source, with_labels
from tests.models.conftest import SOURCE

MODELS = {folder.name: folder for folder in Source(SOURCE).models()}
PUBLIC = {"sentiment", "topics", "language", "minilm-l6-v2", "bge-small-en-v1.5", "ms-marco-minilm", "pii", "analyze"}
NETWORKS = sorted(name for name, folder in MODELS.items() if (folder / "configs").is_dir())


def parsed(file: Path) -> ModelConfig:
    return text_format.Parse(with_labels(file.read_text(), SOURCE), ModelConfig())


def config(model: str) -> ModelConfig:
    return parsed(MODELS[model] / "config.pbtxt")


CONFIGS = {name: config(name) for name in MODELS}
ENSEMBLES = sorted(name for name, its in CONFIGS.items() if its.platform == "ensemble")
MEMBERS = sorted(CONFIGS.keys() - ENSEMBLES)
VARIANTS = {
    f"{name}/{file.stem}": (name, file) for name in MEMBERS for file in sorted(MODELS[name].rglob("*.pbtxt"), reverse=True)
}


def shapes(tensors: "Iterator[ModelInput | ModelOutput]") -> dict[str, tuple[int, tuple[int, ...]]]:
    return {tensor.name: (tensor.data_type, tuple(tensor.dims)) for tensor in tensors}


def test_the_public_models_are_the_ensembles() -> None:
    assert set(ENSEMBLES) == PUBLIC


@pytest.mark.parametrize("model", MODELS)
def test_a_model_is_called_like_its_folder(model: str) -> None:
    assert {parsed(file).name for file in MODELS[model].rglob("*.pbtxt")} == {model}


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_variants_of_a_model_differ_in_how_they_run_alone(variant: str) -> None:
    name, file = VARIANTS[variant]
    ours, production = parsed(file), CONFIGS[name]
    assert shapes(ours.input) == shapes(production.input)
    assert shapes(ours.output) == shapes(production.output)
    assert ours.max_batch_size == production.max_batch_size


@pytest.mark.parametrize("variant", VARIANTS)
def test_members_batch_and_heed_timeouts_and_priorities_and_warm_up(variant: str) -> None:
    ours = parsed(VARIANTS[variant][1])
    batching, policy = ours.dynamic_batching, ours.dynamic_batching.default_queue_policy
    assert policy.timeout_action == policy.REJECT
    assert policy.default_timeout_microseconds >= 30_000_000  # with 0, Triton ignores the timeout of a request
    assert policy.allow_timeout_override
    assert not policy.max_queue_size  # an overflow of any but the first step wedges an ensemble before 26.03
    assert (batching.priority_levels, batching.default_priority_level) == (3, 2)
    assert ours.model_warmup[0].inputs.keys() == shapes(ours.input).keys()


@pytest.mark.parametrize("variant", VARIANTS)
def test_members_have_two_instances_since_a_single_one_stalls_under_a_queue_policy(variant: str) -> None:
    # With a policy, Triton's batcher is not woken when its one busy instance becomes free: the next batch waits up to 500 ms.
    assert [group.count for group in parsed(VARIANTS[variant][1]).instance_group] == [2]


@pytest.mark.parametrize("variant", VARIANTS)
def test_warm_up_samples_fit_the_inputs(variant: str) -> None:
    ours = parsed(VARIANTS[variant][1])
    expected = shapes(ours.input)
    for sample in ours.model_warmup:
        assert 1 <= sample.batch_size <= ours.max_batch_size
        for name, value in sample.inputs.items():
            kind, dims = expected[name]
            assert value.data_type == kind
            assert [fixed if fixed > 0 else given for fixed, given in zip(dims, value.dims, strict=True)] == list(value.dims)


@pytest.mark.parametrize("network", NETWORKS)
def test_a_network_runs_on_gpu_by_onnx_runtime_and_on_cpu_by_python(network: str) -> None:
    production, cpu = CONFIGS[network], parsed(MODELS[network] / "configs" / "cpu.pbtxt")
    assert (production.backend, production.instance_group[0].kind) == ("onnxruntime", production.instance_group[0].KIND_GPU)
    assert (cpu.backend, cpu.instance_group[0].kind) == ("python", cpu.instance_group[0].KIND_CPU)
    assert (MODELS[network] / "1" / "model.py").is_file()


@pytest.mark.parametrize("network", sorted(set(NETWORKS) - {"vector-identity", "language-bayes"}))
def test_tensorrt_knows_every_shape_before_the_first_request(network: str) -> None:
    ours = parsed(MODELS[network] / "configs" / "tensorrt.pbtxt")
    (accelerator,) = ours.optimization.execution_accelerators.gpu_execution_accelerator
    assert accelerator.name == "tensorrt"
    assert accelerator.parameters["precision_mode"] == "FP16"
    assert accelerator.parameters["trt_engine_cache_enable"] == "1"
    least, usual, most = (profile(accelerator.parameters[f"trt_profile_{which}_shapes"]) for which in ("min", "opt", "max"))
    assert least.keys() == usual.keys() == most.keys() == shapes(ours.input).keys()
    for name, (_, dims) in shapes(ours.input).items():
        assert least[name][0] == 1
        assert most[name][0] == ours.max_batch_size
        for low, middle, high, fixed in zip(least[name], usual[name], most[name], (-1, *dims), strict=True):
            assert low <= middle <= high
            assert low == high == fixed or fixed == -1


def profile(parameter: str) -> dict[str, tuple[int, ...]]:
    pairs = (entry.split(":") for entry in parameter.split(","))
    return {name: tuple(map(int, dims.split("x"))) for name, dims in pairs}


@pytest.mark.parametrize("ensemble", ENSEMBLES)
def test_an_ensemble_fits_its_members(ensemble: str) -> None:
    ours = CONFIGS[ensemble]
    tensors = shapes(ours.input)
    for step in ours.ensemble_scheduling.step:
        member = CONFIGS[step.model_name]
        assert step.model_version == 1
        assert ours.max_batch_size <= member.max_batch_size
        assert set(step.input_map) == shapes(member.input).keys()
        assert {tensor: tensors[tensor] for tensor in step.input_map.values()} == {
            step.input_map[name]: shape for name, shape in shapes(member.input).items()
        }
        tensors |= {step.output_map[name]: shapes(member.output)[name] for name in step.output_map}
    assert {name: tensors[name] for name in shapes(ours.output)} == shapes(ours.output)


@pytest.mark.parametrize("ensemble", ENSEMBLES)
def test_no_tensor_is_both_an_answer_and_an_input_of_a_step(ensemble: str) -> None:
    ours = CONFIGS[ensemble]
    consumed = set(chain.from_iterable(step.input_map.values() for step in ours.ensemble_scheduling.step))
    assert not consumed & shapes(ours.output).keys()


@pytest.mark.parametrize(
    ("ensemble", "parameter", "output"),
    [
        ("sentiment", "labels", "SCORES"),
        ("topics", "labels", "SCORES"),
        ("language", "labels", "SCORES"),
        ("analyze", "labels.sentiment", "SENTIMENT"),
        ("analyze", "labels.topics", "TOPICS"),
        ("analyze", "labels.language", "LANGUAGE"),
    ],
)
def test_there_is_a_label_for_every_score(ensemble: str, parameter: str, output: str) -> None:
    labels = json.loads(CONFIGS[ensemble].parameters[parameter].string_value)
    assert (len(labels),) == shapes(CONFIGS[ensemble].output)[output][1]
    assert len(set(labels)) == len(labels)


def test_labels_read_as_they_are_documented() -> None:
    assert json.loads(CONFIGS["sentiment"].parameters["labels"].string_value) == ["negative", "neutral", "positive"]
    assert "Automotive > Auto Body Styles > SUV (6)" in json.loads(CONFIGS["topics"].parameters["labels"].string_value)
    assert "GIVEN_NAME" in json.loads(CONFIGS["pii"].parameters["labels"].string_value)
    assert CONFIGS["analyze"].parameters["embedding_model"].string_value in PUBLIC
