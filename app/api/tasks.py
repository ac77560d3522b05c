"""One operation for each task: bytes to a `Call`, the gateway, an answer."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel
from pydantic_core import to_json

from app.api import answers
from app.api.body import BodyLimits, Parsed, read_json, timeout_of
from app.api.inference_schemas import InferenceProblem
from app.api.openapi import documented
from app.api.presence import AsgiCaller
from app.api.rerank import RerankRequest, RerankResponse, ranked
from app.api.schemas import (
    AnalyzeRequest,
    AnalyzeResponse,
    ClassifyRequest,
    ClassifyResponse,
    EmbeddingsRequest,
    EmbeddingsResponse,
    EntitiesRequest,
    EntitiesResponse,
    OpenAIProblem,
    Problem,
)
from app.api.turns import AT_ONCE, Pieces, written
from app.calls.texts import Answer, Call
from app.gateway import Gateway
from app.telemetry.exchange import Exchange

router = APIRouter()
Items = Callable[[int, int], list[answers.Json]]
"""Those from one place up to another."""
REQUESTS: tuple[type[BaseModel], ...] = (ClassifyRequest, EntitiesRequest, EmbeddingsRequest, AnalyzeRequest, RerankRequest)
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


async def _json(head: answers.Json, name: str, count: int, items: Items, tail: answers.Json) -> Response:
    """An object that has a list between its other members."""
    if count <= AT_ONCE:
        return Response(to_json({**head, name: items(0, count), **tail}), media_type="application/json")
    return Pieces([to_json(head)[:-1] + b',"%s":[' % name.encode(), *await written(count, items), b"]," + to_json(tail)[1:]])


async def _answered(answer: Answer, exchange: Exchange, results: Items, **more: Any) -> Response:
    named = {"model": answer.route.name, "version": answers.version(answer), **more}
    return await _json(named, "results", exchange.inputs, results, {"usage": answers.usage(exchange, answer)})


@router.post("/v1/classify", **documented("classify", ClassifyRequest, ClassifyResponse, "Sort texts into a model's labels"))
async def classify(request: Request) -> Response:
    """Sort texts into a model's labels: sentiment, topics, language."""
    body = await _read(request, ClassifyRequest)
    answer = await _answer(
        request, Call("classify", body.model, body.inputs, truncate=body.truncate, timeout_ms=body.timeout_ms)
    )
    return await _answered(
        answer, request.state.exchange, lambda start, end: answers.classified(answer.part(start, end), body.top_k)
    )


@router.post("/v1/entities", **documented("entities", EntitiesRequest, EntitiesResponse, "Find personal data in texts"))
async def entities(request: Request) -> Response:
    """Find names, addresses and other personal data in texts, with their exact places."""
    body = await _read(request, EntitiesRequest)
    answer = await _answer(
        request, Call("entities", body.model, body.inputs, truncate=body.truncate, timeout_ms=body.timeout_ms)
    )

    def found(start: int, end: int) -> list[answers.Json]:
        return answers.entities(answer.part(start, end), body.inputs[start:end], body.offsets, include_text=body.include_text)

    return await _answered(answer, request.state.exchange, found)


@router.post(
    "/v1/embeddings",
    **documented("embeddings", EmbeddingsRequest, EmbeddingsResponse, "Turn texts into vectors", shape=OpenAIProblem),
)
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

    def data(start: int, end: int) -> list[answers.Json]:
        vectors = (answers.shortened(row, body.dimensions) for row in rows[start:end])
        return [
            {"object": "embedding", "index": at, "embedding": answers.vector(row, body.encoding_format)}
            for at, row in enumerate(vectors, start)
        ]

    tokens = request.state.exchange.tokens
    tail = {"model": body.model, "usage": {"prompt_tokens": tokens, "total_tokens": tokens}}
    return await _json({"object": "list"}, "data", len(rows), data, tail)


@router.post("/v1/analyze", **documented("analyze", AnalyzeRequest, AnalyzeResponse, "Several answers in one call"))
async def analyze(request: Request) -> Response:
    """Several answers in one call: a branching ensemble reads each text once and feeds every head that is asked for."""
    body = await _read(request, AnalyzeRequest)
    call = Call("analyze", body.model, body.inputs, features=body.features, truncate=body.truncate, timeout_ms=body.timeout_ms)
    answer = await _answer(request, call)
    embedding_model = answer.ensemble.embedding_model or None if "embedding" in answer.rows else None

    def results(start: int, end: int) -> list[answers.Json]:
        return answers.analyzed(answer.part(start, end), body.top_k, body.encoding_format)

    return await _answered(answer, request.state.exchange, results, embedding_model=embedding_model)


def _rerank(summary: str, operation_id: str, shape: type[BaseModel]) -> dict[str, Any]:
    answer = "The documents, the most relevant first."
    return documented("rerank", RerankRequest, RerankResponse, summary, answer=answer, shape=shape, operation_id=operation_id)


@router.post("/v2/rerank", **_rerank("The same, where Cohere's newer clients ask", "rerank_for_cohere", InferenceProblem))
@router.post("/v1/rerank", **_rerank("Order documents by how well they answer", "rerank", Problem))
async def rerank(request: Request) -> Response:
    """Order documents by how well they answer a query; the request and answer of Cohere's and Jina's clients."""
    body = await _read(request, RerankRequest)
    call = Call(
        "rerank",
        body.model,
        body.texts(),
        "/documents",
        query=body.query,
        truncate=body.truncate,
        timeout_ms=body.timeout_ms,
    )
    answer = await _answer(request, call)
    head, count, results, tail = ranked(answer, body, request.state.exchange)
    return await _json(head, "results", count, results, tail)


POSTS = {"/v1/classify": classify, "/v1/entities": entities, "/v1/embeddings": embeddings, "/v1/analyze": analyze}
"""The handlers by path, for who calls them past the router and takes a body's length for the most that it costs: so not that of
rerank, where a query counts for each document.
"""
