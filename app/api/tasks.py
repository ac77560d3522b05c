"""One operation for each task: bytes to a `Call`, the gateway, an answer."""

from dataclasses import replace
from typing import Any

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel
from pydantic_core import to_json

from app.api import answers
from app.api.body import BodyLimits, Parsed, read_json, timeout_of
from app.api.openapi import documented
from app.api.presence import AsgiCaller
from app.api.schemas import (
    AnalyzeRequest,
    AnalyzeResponse,
    ClassifyRequest,
    ClassifyResponse,
    EmbeddingsRequest,
    EmbeddingsResponse,
    EntitiesRequest,
    EntitiesResponse,
)
from app.gateway import Answer, Call, Gateway
from app.telemetry.exchange import Exchange

router = APIRouter()
REQUESTS: tuple[type[BaseModel], ...] = (ClassifyRequest, EntitiesRequest, EmbeddingsRequest, AnalyzeRequest)
"""The bodies, for the document."""


async def _answer(request: Request, call: Call) -> Answer:
    state = request.state
    if call.timeout_ms is None and (header := request.headers.get("x-request-timeout-ms")) is not None:
        call = replace(call, timeout_ms=timeout_of(header))
    gateway: Gateway = state.gateway
    return await gateway.infer(call, state.principal.tenant, AsgiCaller(request.receive), state.exchange)


async def _read(request: Request, shape: type[Parsed]) -> Parsed:
    limits: BodyLimits = request.state.body_limits
    return await read_json(request, limits, shape)


def _json(content: Any) -> Response:
    return Response(to_json(content), media_type="application/json")


def _answered(answer: Answer, exchange: Exchange, results: list[answers.Json], **more: Any) -> Response:
    named = {"model": answer.route.name, "version": answers.version(answer), **more}
    return _json({**named, "results": results, "usage": answers.usage(exchange.characters, answer)})


@router.post("/v1/classify", **documented("classify", ClassifyRequest, ClassifyResponse))
async def classify(request: Request) -> Response:
    """Sort texts into a model's labels: sentiment, topics, language."""
    body = await _read(request, ClassifyRequest)
    answer = await _answer(
        request, Call("classify", body.model, body.inputs, truncate=body.truncate, timeout_ms=body.timeout_ms)
    )
    labels = answer.ensemble.labels["scores"]
    pairs = zip(answer.rows["scores"], answers.remarks(answer), strict=True)
    results = [{"labels": answers.labelled(scores, labels, body.top_k), **remark} for scores, remark in pairs]
    return _answered(answer, request.state.exchange, results)


@router.post("/v1/entities", **documented("entities", EntitiesRequest, EntitiesResponse))
async def entities(request: Request) -> Response:
    """Find names, addresses and other personal data in texts, with their exact places."""
    body = await _read(request, EntitiesRequest)
    answer = await _answer(
        request, Call("entities", body.model, body.inputs, truncate=body.truncate, timeout_ms=body.timeout_ms)
    )
    found = answers.entities(answer, body.inputs, body.offsets, include_text=body.include_text)
    results = [{"entities": entities, **remark} for entities, remark in zip(found, answers.remarks(answer), strict=True)]
    return _answered(answer, request.state.exchange, results)


@router.post("/v1/embeddings", **documented("embeddings", EmbeddingsRequest, EmbeddingsResponse))
async def embeddings(request: Request) -> Response:
    """Turn texts into vectors; OpenAI's request and answer, so that its SDKs work by changing the base URL."""
    body = await _read(request, EmbeddingsRequest)
    listed = isinstance(body.input, list)
    texts = body.input if isinstance(body.input, list) else [body.input]
    call = Call(
        "embeddings",
        body.model,
        texts,
        "/input",
        listed,
        dimensions=body.dimensions,
        truncate=body.truncate,
        timeout_ms=body.timeout_ms,
    )
    answer = await _answer(request, call)
    rows = answer.rows["embedding"]
    data = [
        {"object": "embedding", "index": at, "embedding": answers.vector(row, body.encoding_format)}
        for at, row in enumerate(rows)
    ]
    tokens = answers.usage(0, answer)["tokens"] or 0
    return _json(
        {"object": "list", "data": data, "model": body.model, "usage": {"prompt_tokens": tokens, "total_tokens": tokens}}
    )


@router.post("/v1/analyze", **documented("analyze", AnalyzeRequest, AnalyzeResponse))
async def analyze(request: Request) -> Response:
    """Several answers in one call: a branching ensemble reads each text once and feeds every head that is asked for."""
    body = await _read(request, AnalyzeRequest)
    call = Call("analyze", body.model, body.inputs, features=body.features, truncate=body.truncate, timeout_ms=body.timeout_ms)
    answer = await _answer(request, call)
    results = [_analyzed(answer, at, remark, body) for at, remark in enumerate(answers.remarks(answer))]
    embedding_model = answer.ensemble.embedding_model or None if "embedding" in answer.rows else None
    return _answered(answer, request.state.exchange, results, embedding_model=embedding_model)


def _analyzed(answer: Answer, at: int, remark: answers.Json, body: AnalyzeRequest) -> answers.Json:
    labels = answer.ensemble.labels
    heads = {role: answers.labelled(answer.rows[role][at], labels[role], body.top_k) for role in labels if role in answer.rows}
    result = {"heads": heads, **remark}
    if "embedding" in answer.rows:
        result["embedding"] = answers.vector(answer.rows["embedding"][at], body.encoding_format)
    return result


POSTS = {"/v1/classify": classify, "/v1/entities": entities, "/v1/embeddings": embeddings, "/v1/analyze": analyze}
"""The handlers by path, for who calls them past the router."""
