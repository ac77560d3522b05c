"""`routes.yaml`: which public models there are, as people write it down."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from app.routing.route import MOST_CHARACTERS, MOST_INPUTS, PROBE, Caps, Route, Target
from app.routing.task import TASKS
from app.tenancy.yaml_document import YamlDocument, YamlInvalid

_NAME = r"^[A-Za-z0-9._-]{1,128}$"
"""Triton builds paths from model names, so that no other character ever reaches it."""
Name = Annotated[str, Field(pattern=_NAME)]
TaskName = Literal["classify", "embeddings", "entities", "analyze", "rerank", "infer"]


class RoutesInvalid(ValueError):
    """The file can't be used; `faults` holds a sentence for each point."""

    def __init__(self, faults: list[str]) -> None:
        super().__init__("\n".join(faults))
        self.faults = tuple(faults)


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class _Target(_Section):
    ensemble: Name
    weight: int = Field(100, ge=0, le=1_000_000)


class _Limits(_Section):
    inputs: int = Field(256, ge=1, le=MOST_INPUTS)
    characters_per_input: int = Field(20_000, ge=1, le=MOST_CHARACTERS)
    characters: int = Field(200_000, ge=1, le=MOST_CHARACTERS)
    allow_empty: bool = False


class _Timeout(_Section):
    default: int = Field(2_000, ge=1)
    max: int = Field(10_000, ge=1)

    @model_validator(mode="after")
    def _ordered(self) -> "_Timeout":
        if self.default > self.max:
            raise ValueError("default must not exceed max")
        return self


class _Route(_Section):
    task: TaskName
    targets: list[_Target] = Field(min_length=1)
    tensors: dict[str, str] = Field(default_factory=dict)
    labels: list[str] | dict[str, list[str]] = Field(default_factory=list)
    limits: _Limits = Field(default_factory=_Limits)
    timeout_ms: _Timeout = Field(default_factory=_Timeout)
    concurrency: int | None = Field(None, ge=1)
    required: bool = False
    description: str = ""
    probe: str = Field(PROBE, min_length=1, max_length=1000)
    dimensions: Literal["any"] | list[Annotated[int, Field(ge=1)]] = Field(default_factory=list)

    @model_validator(mode="after")
    def _consistent(self) -> "_Route":
        task = TASKS[self.task]
        if sum(target.weight for target in self.targets) == 0:
            raise ValueError("targets: at least one weight must be above 0")
        for role in self.tensors:
            if task.bare or (role not in task.inputs and task.role(role) is None):
                raise ValueError(f"tensors: the task {self.task} has no role {role}")
        missing = [role.name for role in task.roles if role.required and role.name not in self.tensors]
        if self.tensors and missing:
            raise ValueError(f"tensors: the task {self.task} needs the role {missing[0]}")
        if self.labels and task.bare:
            raise ValueError(f"labels: the task {self.task} has none")
        if self.dimensions and self.task != "embeddings":
            raise ValueError(f"dimensions: the task {self.task} has no vectors that can be cut")
        if isinstance(self.labels, list) and self.labels and task.open:
            raise ValueError(f"labels: with the task {self.task}, give a list for each head by its role")
        return self

    def declared(self, name: str) -> Route:
        task = TASKS[self.task]
        labels = (
            self.labels if isinstance(self.labels, dict) else {role.name: self.labels for role in task.roles if role.labelled}
        )
        return Route(
            name=name,
            task=task,
            targets=tuple(Target(target.ensemble, target.weight) for target in self.targets),
            tensors=self.tensors,
            labels={role: tuple(names) for role, names in labels.items()},
            caps=Caps(**self.limits.model_dump()),
            timeout=self.timeout_ms.default / 1000,
            timeout_max=self.timeout_ms.max / 1000,
            concurrency=self.concurrency,
            required=self.required,
            description=self.description,
            probe=self.probe,
            dimensions=self.dimensions if self.dimensions == "any" else tuple(sorted(self.dimensions)),
        )


class _File(_Section):
    routes: dict[Name, _Route] = Field(min_length=1)


def read_chart(path: Path) -> Mapping[str, Route]:
    """The routes of a file, by name; raises `RoutesInvalid`."""
    try:
        document = YamlDocument(path.read_bytes())
    except OSError as error:
        raise RoutesInvalid([f"{path}: {error.strerror}"]) from error
    except YamlInvalid as invalid:
        raise RoutesInvalid([f"{path}:{invalid.line}: not YAML: {invalid.sentence}"]) from invalid
    if not isinstance(document.value, dict):
        raise RoutesInvalid([f"{path}:1: there must be a member routes, with a route for each public model"])
    try:
        file = _File.model_validate(document.value)
    except ValidationError as error:
        faults = error.errors(include_url=False, include_input=False)
        raise RoutesInvalid(
            [
                f"{path}:{document.line(fault['loc'])}: {_place(fault['loc'])}: {fault['msg'].removeprefix('Value error, ')}"
                for fault in faults
            ]
        ) from error
    return {name: section.declared(name) for name, section in file.routes.items()}


def _place(loc: tuple[int | str, ...]) -> str:
    return ".".join(str(part) for part in loc) or "file"
