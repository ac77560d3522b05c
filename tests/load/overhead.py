"""What single duties cost in CPU, with nothing else in the process: `python tests/load/overhead.py`.

The least of many rounds, since a busy machine only ever adds to it.
"""

import asyncio
import time
from array import array
from collections.abc import Awaitable, Callable
from timeit import repeat

import uvloop
from starlette.types import Message
from tritonclient.grpc import service_pb2 as pb

from app.api.presence import AsgiCaller
from app.telemetry.exchange import Exchange
from app.telemetry.metrics import Metrics
from app.triton.answer import read_answer
from app.triton.ensemble import Ensemble
from app.triton.tensor import TensorSpec, pack_texts
from tests.fakes.triton import put
from tests.load import tracing

TEXT = b"I absolutely love this phone, the battery lasts for days!"
ROUNDS, TIMES = 150, 300
ENSEMBLE = Ensemble(
    "noop",
    "",
    64,
    {"text": TensorSpec("TEXT", "BYTES", (1,))},
    {
        "scores": TensorSpec("SCORES", "FP32", (3,)),
        "tokens": TensorSpec("TOKENS", "INT32", (1,)),
        "truncated": TensorSpec("TRUNCATED", "BOOL", (1,)),
        "error": TensorSpec("ERROR", "BYTES", (1,)),
    },
)


def answer() -> bytes:
    response = pb.ModelInferResponse(model_name="noop", model_version="1", id="x" * 24)
    put(response, "ERROR", "BYTES", (1, 1), pack_texts([b""]))
    put(response, "SCORES", "FP32", (1, 3), array("f", (0.1, 0.2, 0.7)).tobytes())
    put(response, "TRUNCATED", "BOOL", (1, 1), b"\0")
    put(response, "TOKENS", "INT32", (1, 1), array("i", (17,)).tobytes())
    return bytes(response.SerializeToString())


def one_call() -> float:
    """Building the request and reading the answer of one ensemble call, in µs."""
    roles, raw = tuple(ENSEMBLE.outputs), answer()

    def call() -> None:
        ENSEMBLE.request([TEXT], roles, "x" * 24, 2_000_000, 2)
        ENSEMBLE.read(read_answer(raw), roles, 1)

    return min(repeat(call, number=TIMES, repeat=ROUNDS, timer=time.process_time)) / TIMES * 1e6


async def _cpu(times: int, work: Callable[[], Awaitable[None]]) -> float:
    before = time.process_time()
    for _ in range(times):
        await work()
    return (time.process_time() - before) / times * 1e6


async def _watching() -> float:
    async def receive() -> Message:
        await asyncio.Event().wait()
        raise AssertionError

    async def plain() -> None:
        await asyncio.sleep(0)

    async def watched() -> None:
        with AsgiCaller(receive).watched():
            await asyncio.sleep(0)
        await asyncio.sleep(0)  # in which the watch ends

    async def twice() -> None:
        await plain()
        await plain()

    return min([await _cpu(TIMES, watched) for _ in range(ROUNDS)]) - min([await _cpu(TIMES, twice) for _ in range(ROUNDS)])


def watching() -> float:
    """Noticing that a caller leaves, whether one does or not, in µs for each request."""
    return uvloop.run(_watching())


def counting() -> float:
    """All that one answered request leaves in the metrics, in µs."""
    metrics = Metrics()
    exchange = Exchange("x" * 24, route="/v1/classify", tenant="acme", model="noop", ensemble="noop", limiter="admitted")
    exchange.inputs, exchange.characters, exchange.tokens, exchange.chunks = 1, len(TEXT), 17, 1
    exchange.auth = exchange.parse = exchange.admission = exchange.queue = exchange.triton = exchange.encode = 0.001

    def count() -> None:
        metrics.record(exchange, 200)
        metrics.ask("ok", 0.0003)
        metrics.triton.labels("triton:8001", "noop", "ok").inc()
        metrics.triton_seconds.labels("noop").observe(0.001)

    return min(repeat(count, number=TIMES, repeat=ROUNDS, timer=time.process_time)) / TIMES * 1e6


def main() -> None:
    print(f"{'building and reading one call':<34}{one_call():>10.1f} µs")
    print(f"{'watching for a caller who leaves':<34}{watching():>10.1f} µs")
    print(f"{'counting one request':<34}{counting():>10.1f} µs")
    tracing.main()


if __name__ == "__main__":
    main()
