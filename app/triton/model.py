"""What a Triton says of one model, as far as a route can care."""

from collections.abc import Mapping
from dataclasses import dataclass

from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2 as config_pb

from app.triton.tensor import TensorSpec


class ConfigUnreadable(ValueError):
    """The text is not a model's config."""


@dataclass(frozen=True, slots=True)
class Model:
    """`steps` are the members of an ensemble: name and version, -1 where none is pinned. An ensemble has no instances."""

    name: str
    max_batch: int
    decoupled: bool
    inputs: Mapping[str, TensorSpec]
    outputs: Mapping[str, TensorSpec]
    parameters: Mapping[str, str]
    steps: tuple[tuple[str, int], ...]
    instances: int = 0
    """How many batches it computes at once."""
    keeps_timeouts: bool = False
    """Whether a request that waits longer in the queue than its `timeout` is refused."""
    priority_levels: int = 0
    stateful: bool = False
    """Whether its calls belong to sequences."""
    versions: tuple[str, ...] = ()
    """Those that are loaded; empty where only the config is known."""

    @classmethod
    def of(cls, config: config_pb.ModelConfig, versions: tuple[str, ...] = ()) -> "Model":
        return cls(
            name=config.name,
            max_batch=config.max_batch_size,
            decoupled=config.model_transaction_policy.decoupled,
            inputs={tensor.name: _spec(tensor) for tensor in config.input},
            outputs={tensor.name: _spec(tensor) for tensor in config.output},
            parameters={name: parameter.string_value for name, parameter in config.parameters.items()},
            steps=tuple((step.model_name, step.model_version) for step in config.ensemble_scheduling.step),
            instances=sum(group.count * max(1, len(group.gpus)) for group in config.instance_group if not group.passive),
            keeps_timeouts=_keeps_timeouts(config),
            priority_levels=config.dynamic_batching.priority_levels,
            stateful=config.HasField("sequence_batching"),
            versions=versions,
        )

    @classmethod
    def parse(cls, text: str) -> "Model":
        """A `config.pbtxt`; raises `ConfigUnreadable`."""
        try:
            return cls.of(text_format.Parse(text, config_pb.ModelConfig()))
        except text_format.ParseError as error:
            raise ConfigUnreadable(str(error)) from error


def _keeps_timeouts(config: config_pb.ModelConfig) -> bool:
    """A request may only shorten the queue's own timeout: without one, Triton ignores what it asks for."""
    if not config.HasField("dynamic_batching"):
        return False
    batching = config.dynamic_batching
    levels = range(1, max(1, batching.priority_levels) + 1)
    policies = [batching.priority_queue_policy.get(level, batching.default_queue_policy) for level in levels]
    return all(policy.default_timeout_microseconds and policy.allow_timeout_override for policy in policies)


def _spec(tensor: config_pb.ModelInput | config_pb.ModelOutput) -> TensorSpec:
    name = config_pb.DataType.Name(tensor.data_type).removeprefix("TYPE_")
    optional = isinstance(tensor, config_pb.ModelInput) and tensor.optional
    return TensorSpec(tensor.name, "BYTES" if name == "STRING" else name, tuple(tensor.dims), optional)
