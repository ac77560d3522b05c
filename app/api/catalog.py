"""What this tenant may call."""

from typing import Any

from fastapi import APIRouter, Request, Response
from pydantic_core import to_json

from app.api.openapi import problems
from app.api.schemas import ModelCard, ModelList, OpenAIProblem
from app.errors import UnknownModel
from app.routing.route import Serving

router = APIRouter(tags=["models"])


@router.get(
    "/v1/models",
    operation_id="list_models",
    summary="What may be called",
    responses={
        200: {"model": ModelList, "description": "The models that this tenant may call."},
        **problems(401, shape=OpenAIProblem),
    },
)
async def list_models(request: Request) -> Response:
    """The models that this tenant may call."""
    cards = [_card(serving) for serving in request.state.gateway.table().visible(request.state.principal.tenant)]
    return Response(to_json({"object": "list", "data": cards}), media_type="application/json")


@router.get(
    "/v1/models/{model}",
    operation_id="get_model",
    summary="One model, with its labels",
    responses={
        200: {"model": ModelCard, "description": "The model, and the labels that it gives."},
        **problems(404, shape=OpenAIProblem),
    },
)
async def get_model(request: Request, model: str) -> Response:
    """One model, with its labels."""
    for serving in request.state.gateway.table().visible(request.state.principal.tenant):
        if serving.route.name == model:
            return Response(to_json({**_card(serving), **_labels(serving)}), media_type="application/json")
    raise UnknownModel("there is no such model among those that this tenant may call")


def _card(serving: Serving) -> dict[str, Any]:
    route, caps = serving.route, serving.route.caps
    return {
        "id": route.name,
        "object": "model",
        "created": 0,
        "owned_by": "conch",
        "task": route.task.name,
        "description": route.description,
        "available": bool(serving.ensembles),
        **_dimensions(serving),
        "limits": {
            "inputs": caps.inputs,
            "characters_per_input": caps.characters_per_input,
            "characters": caps.characters,
            "allow_empty": caps.allow_empty,
            "timeout_ms_default": int(route.timeout * 1000),
            "timeout_ms_max": int(route.timeout_max * 1000),
        },
    }


def _dimensions(serving: Serving) -> dict[str, Any]:
    allowed = serving.route.dimensions
    for ensemble, _ in serving.ensembles:
        if "embedding" in ensemble.outputs:
            own = ensemble.outputs["embedding"].dims[0]
            shorter = [] if allowed == "any" else [length for length in allowed if length < own]
            return {"dimensions": own, "shorter_dimensions": shorter, "any_shorter_dimensions": allowed == "any"}
    return {"dimensions": None}


def _labels(serving: Serving) -> dict[str, Any]:
    for ensemble, _ in serving.ensembles:
        if ensemble.labels:
            return {"labels": {role: list(labels) for role, labels in ensemble.labels.items()}}
    return {}
