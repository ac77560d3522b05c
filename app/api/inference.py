"""The Open Inference Protocol (KServe v2) over REST: any model that a route lists, by its own tensors.

What changes a server (its repository, shared memory, tracing, logging) is not here, and never will be.
"""

import re
from collections.abc import Awaitable, Callable
from typing import Any

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel
from pydantic_core import to_json

from app import __version__
from app.api.body import BodyLimits, gathered, timeout_of
from app.api.inference_schemas import (
    InferenceProblem,
    InferRequest,
    Live,
    ModelConfig,
    ModelMetadata,
    Ready,
    ServerMetadata,
    infer_documented,
)
from app.api.json_text import parse_calmly
from app.api.openapi import problems
from app.api.presence import AsgiCaller
from app.api.tensors import parted, read_request, write_answer
from app.api.turns import Turn, in_pieces, let_go
from app.calls.tensors import TensorCall
from app.errors import Malformed, Unavailable, UnsupportedMedia
from app.gateway import Gateway
from app.routing.route import Route, Serving, suffices
from app.triton.signature import Signature
from app.triton.tensor import Tensor, TensorSpec

router = APIRouter(tags=["inference"])

_MEDIA = re.compile(r'(application/(json\s*(;\s*charset="?utf-8"?\s*)?|octet-stream))?', re.IGNORECASE)
_JSON_SIZE = "inference-header-content-length"
_MOST_PER_BYTE = 4
"""What a byte of a body can cost at most: `0,` is a number of eight bytes."""
_PLATFORM = "conch"
_AS_IT_IS = {"cache-control": "no-store, no-transform"}
"""tritonclient's aio client asks for gzip, and then does not undo it but in the answers of `infer`."""


def _json(content: Any) -> Response:
    return Response(to_json(content), media_type="application/json", headers=_AS_IT_IS)


def _described(operation_id: str, summary: str, answer: type[BaseModel], *statuses: int) -> dict[str, Any]:
    responses = {200: {"model": answer}, **problems(401, 403, *statuses, shape=InferenceProblem)}
    return {"operation_id": operation_id, "summary": summary, "responses": responses}


@router.get("/v2", **_described("server_metadata", "Who answers", ServerMetadata))
async def server_metadata(request: Request) -> Response:
    """The gateway's name and version, and which extensions of the protocol are spoken."""
    return _json({"name": "conch", "version": __version__, "extensions": ["binary_tensor_data", "model_configuration"]})


@router.get("/v2/health/live", **_described("server_live", "Whether the gateway runs", Live))
async def server_live(request: Request) -> Response:
    """It does, where this is answered."""
    return _json({"live": True})


@router.get("/v2/health/ready", **_described("server_ready", "Whether the models can be served", Ready))
async def server_ready(request: Request) -> Response:
    """Whether every required model that this tenant may call can be served now; a 503 where one can't."""
    if not suffices(_gateway(request).table().visible(request.state.principal.tenant)):
        raise Unavailable("not every required model can be served now", retry_after=1)
    return _json({"ready": True})


@router.get("/v2/models/{model}", **_described("model_metadata", "A model's tensors", ModelMetadata, 404))
async def model_metadata(request: Request, model: str) -> Response:
    """Their names, datatypes and shapes, and the model's versions."""
    return _metadata(request, model)


@router.get(
    "/v2/models/{model}/versions/{version}",
    **_described("model_version_metadata", "The tensors of a version", ModelMetadata, 404),
)
async def model_version_metadata(request: Request, model: str, version: str) -> Response:
    """As of the model, where it has the version."""
    return _metadata(request, model, version)


@router.get("/v2/models/{model}/ready", **_described("model_ready", "Whether a model can be served", Ready, 404))
async def model_ready(request: Request, model: str) -> Response:
    """Whether it can be served now; a 503 where it can't."""
    return _readiness(request, model)


@router.get(
    "/v2/models/{model}/versions/{version}/ready",
    **_described("model_version_ready", "Whether a version can be served", Ready, 404),
)
async def model_version_ready(request: Request, model: str, version: str) -> Response:
    """As of the model, where it has the version."""
    return _readiness(request, model, version)


@router.get("/v2/models/{model}/config", **_described("model_config", "A model's configuration", ModelConfig, 404))
async def model_config(request: Request, model: str) -> Response:
    """Its tensors and the size of its batch, as Triton's config has them; how it is made up inside is not told."""
    return _config(request, model)


@router.get(
    "/v2/models/{model}/versions/{version}/config",
    **_described("model_version_config", "The configuration of a version", ModelConfig, 404),
)
async def model_version_config(request: Request, model: str, version: str) -> Response:
    """As of the model, where it has the version."""
    return _config(request, model, version)


@router.post("/v2/models/{model}/infer", **infer_documented("model_infer", "Ask a model by its tensors"))
async def model_infer(request: Request, model: str) -> Response:
    """Tensors in, tensors out: as JSON, or as bytes after it."""
    return await _infer(request, model)


@router.post(
    "/v2/models/{model}/versions/{version}/infer", **infer_documented("model_version_infer", "Ask a version by its tensors")
)
async def model_version_infer(request: Request, model: str, version: str) -> Response:
    """As of the model, where it has the version."""
    return await _infer(request, model, version)


POSTS: dict[str, Callable[..., Awaitable[Response]]] = {
    "/v2/models/{model}/infer": model_infer,
    "/v2/models/{model}/versions/{version}/infer": model_version_infer,
}
"""The handlers by the template of their path."""


def _metadata(request: Request, model: str, version: str = "") -> Response:
    route, signature = _found(request, model, version)

    def shown(spec: TensorSpec) -> dict[str, Any]:
        return {"name": spec.name, "datatype": spec.dtype, "shape": signature.dims(spec, -1)}

    inputs, outputs = ([shown(spec) for spec in specs] for specs in (signature.inputs, signature.outputs))
    head = {"name": route.name, "versions": signature.versions, "platform": _PLATFORM}
    return _json({**head, "inputs": inputs, "outputs": outputs})


def _readiness(request: Request, model: str, version: str = "") -> Response:
    _found(request, model, version)
    return _json({"ready": True})


def _config(request: Request, model: str, version: str = "") -> Response:
    route, signature = _found(request, model, version)

    def shown(spec: TensorSpec) -> dict[str, Any]:
        return {"name": spec.name, "data_type": f"TYPE_{'STRING' if spec.dtype == 'BYTES' else spec.dtype}", "dims": spec.dims}

    head = {"name": route.name, "platform": _PLATFORM, "max_batch_size": signature.max_batch}
    inputs = [{**shown(spec), "optional": spec.optional} for spec in signature.inputs]
    outputs = [shown(spec) for spec in signature.outputs]
    return _json({**head, "input": inputs, "output": outputs, "model_transaction_policy": {"decoupled": False}})


async def _infer(request: Request, model: str, version: str = "") -> Response:
    state = request.state
    gateway = _gateway(request)
    gateway.refuse_known(state.principal.tenant, _MOST_PER_BYTE * _declared(request), state.exchange)
    asked, tensors = await _read(request)
    outputs = [output.name for output in asked.outputs]
    call = TensorCall(model, tensors, outputs, version, _timeout_ms(request, asked))
    try:
        answer = await gateway.infer(call, state.principal.tenant, AsgiCaller(request.receive), state.exchange)
    finally:
        for tensor in tensors:
            await let_go(tensor.elements, Turn())
    apart = _apart(asked, len(answer.outputs))
    head = {"model_name": answer.route.name, "model_version": answer.version, **({} if asked.id is None else {"id": asked.id})}
    pieces, json_size = await write_answer(head, answer.outputs, apart)
    if json_size is None:
        return in_pieces(pieces, "application/json")
    return in_pieces(pieces, "application/octet-stream", {_JSON_SIZE: str(json_size)})


async def _read(request: Request) -> tuple[InferRequest, list[Tensor]]:
    if not _MEDIA.fullmatch(request.headers.get("content-type", "")):
        raise UnsupportedMedia("the body must be application/json, in UTF-8, or application/octet-stream")
    sizes = request.headers.getlist(_JSON_SIZE)
    if len(sizes) > 1 or not all(re.fullmatch(r"[0-9]{1,10}", size) for size in sizes):
        raise Malformed("Inference-Header-Content-Length must be one number of bytes")
    limits: BodyLimits = request.state.body_limits
    text, rest = parted(await gathered(request, limits), int(sizes[0]) if sizes else None)
    document = await parse_calmly(text, limits.turns)
    try:
        asked, tensors = await read_request(document, rest, limits.max_bytes)
    finally:
        await let_go(document, Turn())
    for given in asked.inputs:
        await let_go(given.data, Turn())
    return asked, tensors


def _declared(request: Request) -> int:
    length = request.headers.get("content-length", "")
    return int(length) if length.isdigit() else request.state.body_limits.max_bytes


def _timeout_ms(request: Request, asked: InferRequest) -> int | None:
    if asked.parameters.timeout is not None:
        return -(-asked.parameters.timeout // 1000)
    header = request.headers.get("x-request-timeout-ms")
    return None if header is None else timeout_of(header)


def _apart(asked: InferRequest, count: int) -> list[bool]:
    """For each output, whether it comes after the JSON."""
    if not asked.outputs:
        return [asked.parameters.binary_data_output] * count
    wishes = (output.parameters.binary_data for output in asked.outputs)
    return [asked.parameters.binary_data_output if wish is None else wish for wish in wishes]


def _gateway(request: Request) -> Gateway:
    gateway: Gateway = request.state.gateway
    return gateway


def _found(request: Request, model: str, version: str) -> tuple[Route, Signature]:
    """Raises `UnknownModel`, and `Unready` where it can't be served."""
    serving: Serving = _gateway(request).table().resolve(model, None, request.state.principal.tenant)
    if version:
        serving = serving.of_version(version)
    serving.choose()
    return serving.route, serving.ensembles[0][0].signature
