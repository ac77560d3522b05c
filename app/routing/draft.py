"""A first `routes.yaml` for somebody who already runs Triton, guessed from what it says of its models."""

from collections.abc import Iterator, Mapping

import yaml

from app.routing.contract import published_labels
from app.triton.client import ChannelOptions, Endpoint
from app.triton.model import Model
from app.triton.tensor import TensorSpec

_MOST_LABELS = 64
_REMARKS = {"tokens": ("TOK", ("INT32", "INT64")), "truncated": ("TRUNC", ("BOOL",)), "error": ("ERR", ("BYTES",))}


async def draft_routes(address: str, options: ChannelOptions) -> str:
    """The file's text; raises `CallFailed`."""
    endpoint = Endpoint(address, options)
    try:
        models = [await endpoint.model(name) for name in sorted(await endpoint.index())]
    finally:
        await endpoint.close()
    steps = {name for model in models for name, _ in model.steps}
    parts = [text for model in models for text in _drafted(model, is_step=model.name in steps)]
    has_routes = any(not part.startswith("  #") for part in parts)
    head = f"# Drafted from the models of {address}; read it before you use it, and then run `conch check`.\n"
    return head + ("routes:\n" if has_routes else "routes: {}\n") + "".join(parts)


def _drafted(model: Model, *, is_step: bool) -> Iterator[str]:
    outputs = model.outputs
    reason = _unfit(model) or ("it is a step of an ensemble" if is_step else "")
    guessed = None if reason else _guess(outputs, has_query="query" in _texts(model))
    if guessed is None:
        yield f"  # {model.name}: left out; {reason or 'none of its outputs looks like the answer of a task'}\n"
        return
    task, roles = guessed
    route: dict[str, object] = {
        "task": task,
        "targets": [{"ensemble": model.name, "weight": 100}],
        "tensors": {**_texts(model), **roles},
        "required": True,
    }
    if task in ("classify", "entities"):
        role = "scores" if task == "classify" else "spans"
        missing = not published_labels(role, model)
        size = outputs[roles[role]].dims[0]
        if missing:
            route["labels"] = [f"label_{at}" for at in range(size if 0 < size <= _MOST_LABELS else 1)]
            yield "  # The model does not publish its labels: replace those below, in the order of its scores.\n"
    text = yaml.safe_dump({model.name: route}, sort_keys=False, default_flow_style=None, width=120)
    yield "".join(f"  {line}\n" for line in text.splitlines())


def _unfit(model: Model) -> str:
    if not _texts(model):
        return "its input is not one text, or a text and a query"
    if model.max_batch < 1:
        return "it does not batch"
    return "it is decoupled" if model.decoupled else ""


def _texts(model: Model) -> dict[str, str]:
    """The roles of its inputs, where they are texts and nothing else."""
    names = [name for name, spec in model.inputs.items() if spec.dtype == "BYTES" and spec.dims in ((1,), (-1,))]
    queries = [name for name in names if "QUER" in name.upper() or "QUESTION" in name.upper()]
    if len(names) < len(model.inputs):
        return {}
    if len(names) == 2 and len(queries) == 1:
        return {"text": next(name for name in names if name not in queries), "query": queries[0]}
    return {"text": names[0]} if len(names) == 1 else {}


def _guess(outputs: Mapping[str, TensorSpec], *, has_query: bool) -> tuple[str, dict[str, str]] | None:
    """The task, and its roles' tensors."""
    remarks = {role: name for name, spec in outputs.items() for role in [_remark(spec)] if role}
    floats = {name: spec.dims for name, spec in outputs.items() if spec.dtype in ("FP32", "FP64")}
    if has_query:
        scores = [name for name, dims in floats.items() if dims == (1,)]
        return ("rerank", {"score": scores[0], **remarks}) if scores else None
    vectors = [name for name, dims in floats.items() if len(dims) == 1 and dims[0] > 1]
    spans = [name for name, spec in outputs.items() if spec.dtype in ("INT32", "INT64") and spec.dims == (-1, 3)]
    free = [name for name, dims in floats.items() if dims == (-1,)]
    if spans and free:
        return "entities", {"spans": spans[0], "span_scores": free[0], **remarks}
    if len(vectors) > 1:
        return "analyze", {**{_head(name): name for name in vectors}, **remarks}
    if vectors:
        embeds = "EMB" in vectors[0].upper()
        role = "embedding" if embeds else "scores"
        return ("embeddings" if embeds else "classify"), {role: vectors[0], **remarks}
    return None


def _remark(spec: TensorSpec) -> str:
    for role, (mark, dtypes) in _REMARKS.items():
        if spec.dims == (1,) and spec.dtype in dtypes and mark in spec.name.upper():
            return role
    return ""


def _head(tensor: str) -> str:
    return "embedding" if "EMB" in tensor.upper() else tensor.lower()
