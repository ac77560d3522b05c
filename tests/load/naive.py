"""The gateway that one writes first: FastAPI's own ways, redis-py and tritonclient.

What `bench.py` compares with. It does the same duties (key, limit, validation, a request id, an access line, metrics, a typed
answer), and has no deadline, no cancellation, no verified answers and no fallback for Redis.
"""

import hashlib
import json
import logging
import os
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Annotated

import numpy as np
import redis.asyncio
import tritonclient.grpc.aio as triton
from fastapi import Depends, FastAPI, Header, HTTPException, Request, Response
from prometheus_client import Counter, Histogram
from pydantic import BaseModel
from starlette.middleware.base import BaseHTTPMiddleware

KEYS = {os.environ["NAIVE_KEY_SHA256"]: "acme"}
SECONDS = Histogram("naive_seconds", "Time of a request.", ["path"])
REQUESTS = Counter("naive_requests", "Requests.", ["path", "status"])
LIMIT = 1_000_000
logging.basicConfig(level=logging.INFO, format="%(message)s")
logging.getLogger("httpx").setLevel(logging.WARNING)
log = logging.getLogger("naive")


class ClassifyBody(BaseModel):
    model: str
    inputs: list[str]


class Label(BaseModel):
    label: str
    score: float


class Result(BaseModel):
    labels: list[Label]


class ClassifyAnswer(BaseModel):
    model: str
    results: list[Result]


class Log(BaseHTTPMiddleware):
    async def dispatch(self, request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
        request_id = request.headers.get("x-request-id", uuid.uuid4().hex)
        started = time.perf_counter()
        response = await call_next(request)
        response.headers["x-request-id"] = request_id
        elapsed = round((time.perf_counter() - started) * 1000, 3)
        line = {"path": request.url.path, "status": response.status_code, "request_id": request_id, "ms": elapsed}
        log.info(json.dumps(line))
        return response


class Measure(BaseHTTPMiddleware):
    async def dispatch(self, request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
        started = time.perf_counter()
        response = await call_next(request)
        SECONDS.labels(request.url.path).observe(time.perf_counter() - started)
        REQUESTS.labels(request.url.path, str(response.status_code)).inc()
        return response


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    app.state.redis = redis.asyncio.Redis.from_url(os.environ["CONCH_REDIS_URL"])
    app.state.triton = triton.InferenceServerClient(os.environ["CONCH_TRITON"])
    yield
    await app.state.triton.close()
    await app.state.redis.aclose()


async def tenant(request: Request, authorization: Annotated[str, Header()]) -> str:
    digest = hashlib.sha256(authorization.removeprefix("Bearer ").encode()).hexdigest()
    if digest not in KEYS:
        raise HTTPException(401)
    key = f"naive:{KEYS[digest]}:{int(time.time())}"
    pipeline = request.app.state.redis.pipeline()
    pipeline.incr(key)
    pipeline.expire(key, 2)
    count, _ = await pipeline.execute()
    if count > LIMIT:
        raise HTTPException(429)
    return KEYS[digest]


app = FastAPI(lifespan=lifespan)
app.add_middleware(Measure)
app.add_middleware(Log)


@app.post("/v1/classify")
async def classify(body: ClassifyBody, request: Request, who: Annotated[str, Depends(tenant)]) -> ClassifyAnswer:
    text = triton.InferInput("TEXT", [len(body.inputs), 1], "BYTES")
    text.set_data_from_numpy(np.array([[item.encode()] for item in body.inputs], dtype=object))
    answer = await request.app.state.triton.infer(body.model, [text])
    labels = ("red", "green", "blue")
    results = [
        Result(labels=[Label(label=label, score=float(score)) for label, score in zip(labels, row, strict=True)])
        for row in answer.as_numpy("SCORES")
    ]
    return ClassifyAnswer(model=body.model, results=results)
