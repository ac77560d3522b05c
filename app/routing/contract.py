"""A route checked against what a live Triton says of its ensemble."""

import json
from collections.abc import Mapping

from app.routing.members import capacity, remarks
from app.routing.route import Route
from app.routing.task import Role, features
from app.triton.datatype import DATATYPES
from app.triton.ensemble import Ensemble
from app.triton.model import Model
from app.triton.signature import Signature
from app.triton.tensor import TensorSpec

Specs = Mapping[str, TensorSpec]
Labels = Mapping[str, tuple[str, ...]]
"""Both by role."""


class Mismatch(Exception):
    """The route and the ensemble disagree; `faults` holds a sentence for each point."""

    def __init__(self, faults: list[str]) -> None:
        super().__init__("; ".join(faults))
        self.faults = tuple(faults)


def bind(route: Route, model: Model, steps: Mapping[str, Model] | None = None) -> Ensemble:
    """The ensemble as the route needs it; raises `Mismatch`. `steps` are those of its members whose configs are known."""
    faults: list[str] = []
    if model.decoupled:
        faults.append("the model is decoupled, and a request must have exactly one answer")
    if model.stateful:
        faults.append("the model keeps sequences, and a request must not depend on others")
    inputs, outputs, labels = _bare(model, faults) if route.task.bare else _by_role(route, model, faults)
    if faults:
        raise Mismatch(faults)
    return Ensemble(
        model.name,
        "",
        model.max_batch,
        inputs,
        outputs,
        labels,
        model.parameters.get("embedding_model", ""),
        capacity(model, steps or {}),
        tuple(remarks(model, steps or {})),
        route.task.verify,
        Signature(model.max_batch, tuple(model.inputs.values()), tuple(model.outputs.values()), model.versions),
    )


def _bare(model: Model, faults: list[str]) -> tuple[Specs, Specs, Labels]:
    """Each tensor plays the role of its own name."""
    faults += [
        f"the tensor {spec.name} is {spec.dtype}, which is no datatype of the protocol"
        for spec in (*model.inputs.values(), *model.outputs.values())
        if spec.dtype not in DATATYPES and spec.dtype != "BYTES"
    ]
    return model.inputs, model.outputs, {}


def _by_role(route: Route, model: Model, faults: list[str]) -> tuple[Specs, Specs, Labels]:
    """The inputs, the outputs, and the labels of those that have some."""
    if model.max_batch < 1:
        faults.append("the model does not batch: max_batch_size must be at least 1")
    tensors = route.tensors or _by_name(route, model.outputs)
    inputs = _inputs(route, tensors, model.inputs, faults)
    specs = _outputs(route, tensors, model.outputs, faults)
    if (
        route.dimensions
        and route.dimensions != "any"
        and "embedding" in specs
        and route.dimensions[-1] > specs["embedding"].dims[0]
    ):
        faults.append(f"vectors can't be cut to {route.dimensions[-1]} numbers: they have {specs['embedding'].dims[0]}")
    labels = {role: _labels(route, role, spec, model, faults) for role, spec in specs.items() if _role(route, role).labelled}
    return inputs, specs, labels


def _by_name(route: Route, outputs: Mapping[str, TensorSpec]) -> dict[str, str]:
    known = [role.name for role in route.task.roles if role.required or role.name.upper() in outputs]
    heads = {name.lower(): name for name in outputs if name.lower() not in known} if route.task.open else {}
    return {role: role.upper() for role in (*route.task.inputs, *known)} | heads


def _inputs(
    route: Route, tensors: Mapping[str, str], inputs: Mapping[str, TensorSpec], faults: list[str]
) -> dict[str, TensorSpec]:
    names = {role: tensors.get(role, role.upper()) for role in route.task.inputs}
    specs = {role: _text(name, inputs, faults) for role, name in names.items()}
    if idle := set(inputs) - set(names.values()):
        faults.append(f"the model has inputs that no role fills: {_listed(idle)}")
    return specs


def _text(name: str, inputs: Mapping[str, TensorSpec], faults: list[str]) -> TensorSpec:
    spec = inputs.get(name)
    if spec is None:
        faults.append(f"there is no input {name}; the model has {_listed(inputs)}")
        return TensorSpec(name, "BYTES", (1,))
    if spec.dtype != "BYTES" or spec.dims not in ((1,), (-1,)):
        faults.append(f"the input {name} must be BYTES [1], and is {_shown(spec)}")
    return spec


def _role(route: Route, name: str) -> Role:
    role = route.task.role(name)
    assert role is not None, name  # noqa: S101  (routes.yaml was checked for it)
    return role


def _outputs(
    route: Route, tensors: Mapping[str, str], outputs: Mapping[str, TensorSpec], faults: list[str]
) -> dict[str, TensorSpec]:
    specs: dict[str, TensorSpec] = {}
    for role_name, tensor in tensors.items():
        if role_name in route.task.inputs:
            continue
        spec = outputs.get(tensor)
        if spec is None:
            faults.append(f"there is no output {tensor} for the role {role_name}; the model has {_listed(outputs)}")
        elif not _fits(role := _role(route, role_name), spec):
            faults.append(
                f"the output {tensor} can't be the role {role_name}: it must be {_wanted(role)}, and is {_shown(spec)}"
            )
        else:
            specs[role_name] = spec
    if not faults and not features(specs):
        faults.append("the route asks for no output but remarks")
    return specs


def _fits(role: Role, spec: TensorSpec) -> bool:
    if spec.dtype not in role.dtypes:
        return False
    if role.kind == "scalar":
        return spec.dims == (1,)
    if role.kind == "vector":
        return len(spec.dims) == 1 and spec.dims[0] > 0
    return spec.dims == ((-1, role.width) if role.width > 1 else (-1,))


def _labels(route: Route, role: str, spec: TensorSpec, model: Model, faults: list[str]) -> tuple[str, ...]:
    labels = route.labels.get(role) or published_labels(role, model)
    if not labels:
        faults.append(f"no labels for the role {role}: neither the route nor the model's parameters give them")
    elif spec.dims[0] not in (-1, len(labels)):
        faults.append(f"the role {role} has {len(labels)} labels for {spec.dims[0]} scores")
    return labels


def published_labels(role: str, model: Model) -> tuple[str, ...]:
    """The labels in the model's own parameters: a JSON list in `labels.<role>` or, with one labelled output, in `labels`."""
    for key in (f"labels.{role}", "labels"):
        if key in model.parameters:
            try:
                labels = json.loads(model.parameters[key])
            except ValueError:
                return ()
            return tuple(str(label) for label in labels) if isinstance(labels, list) else ()
    return ()


def _wanted(role: Role) -> str:
    dims = {"scalar": "[1]", "vector": "[n]", "rows": f"[-1,{role.width}]" if role.width > 1 else "[-1]"}[role.kind]
    return f"{' or '.join(role.dtypes)} {dims}"


def _shown(spec: TensorSpec) -> str:
    return f"{spec.dtype} [{','.join(map(str, spec.dims))}]"


def _listed(names: Mapping[str, TensorSpec] | set[str]) -> str:
    return ", ".join(sorted(names)) or "none"
