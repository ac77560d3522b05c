"""One gRPC channel, and the calls that are on it."""

import asyncio
from functools import partial

import grpc.aio
from grpc.aio._call import Call
from tritonclient.grpc.service_pb2_grpc import GRPCInferenceServiceStub

from app.triton.answer import Answer, read_answer


class Line:
    """`in_flight` counts inferences."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.in_flight = 0
        self.control = GRPCInferenceServiceStub(channel)
        self._channel = channel
        self._idle = asyncio.Event()
        # Raw bytes in: the request was serialised by its ensemble.
        self._infer = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer", response_deserializer=read_answer)

    async def infer(self, request: bytes, seconds: float, metadata: tuple[tuple[str, str], ...]) -> Answer | None:
        """None is gRPC's word for an answer that is not there, or is no such message."""
        self.in_flight += 1
        try:
            return await _answer(self._infer(request, timeout=seconds, metadata=metadata))
        finally:
            self.in_flight -= 1
            if not self.in_flight:
                self._idle.set()

    async def idle(self) -> None:
        """Waits until nothing is in flight."""
        while self.in_flight:
            self._idle.clear()
            await self._idle.wait()

    async def close(self) -> None:
        """With whatever still runs."""
        await self._channel.close()


async def _answer(call: grpc.aio.UnaryUnaryCall) -> Answer | None:
    """Waits like `await call`, which leaks when it is cancelled: grpc.aio then throws away the operation that still waits, and
    with it half a kilobyte that nobody frees (seen with 1.85; `tests/load/storm.py` measures it). So the call is cancelled
    below that, and left to end by itself.
    """
    ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    call.add_done_callback(partial(_settle, ended))
    try:
        await ended
    except asyncio.CancelledError:
        Call.cancel(call)
        raise
    answer: Answer | None = await call
    return answer


def _settle(ended: "asyncio.Future[None]", _: object) -> None:
    if not ended.done():
        ended.set_result(None)
