"""A Triton that does what a test says: a real gRPC server with Triton's own servicer, in the test's event loop."""

import asyncio
import gc
from array import array
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from math import prod
from typing import Any

import grpc
import grpc.aio
from tritonclient.grpc import model_config_pb2 as config_pb
from tritonclient.grpc import service_pb2 as pb
from tritonclient.grpc.service_pb2_grpc import GRPCInferenceServiceServicer, add_GRPCInferenceServiceServicer_to_server

from app.triton.answer import Answer, read_answer
from app.triton.tensor import TYPECODES, pack_texts, unpack_texts

Behaviour = Callable[[pb.ModelInferRequest, grpc.aio.ServicerContext], Awaitable[pb.ModelInferResponse]]
Tensors = Mapping[str, tuple[str, tuple[int, ...]]]
"""Datatype and dims of each tensor, by name."""

REMARKS: Tensors = {"TOKENS": ("INT32", (1,)), "TRUNCATED": ("BOOL", (1,)), "ERROR": ("BYTES", (1,))}
TEXT: Tensors = {"TEXT": ("BYTES", (1,))}


def model(
    name: str,
    outputs: Tensors,
    *,
    inputs: Tensors = TEXT,
    max_batch: int = 64,
    decoupled: bool = False,
    parameters: Mapping[str, str] | None = None,
) -> config_pb.ModelConfig:
    config = config_pb.ModelConfig(name=name, max_batch_size=max_batch)
    for tensors, of in ((inputs, config.input), (outputs, config.output)):
        for tensor, (dtype, dims) in tensors.items():
            data_type = config_pb.DataType.Value("TYPE_" + ("STRING" if dtype == "BYTES" else dtype))
            of.add(name=tensor, data_type=data_type, dims=dims)
    config.model_transaction_policy.decoupled = decoupled
    for key, value in (parameters or {}).items():
        config.parameters[key].string_value = value
    return config


@dataclass(frozen=True, slots=True)
class Asked:
    """One ModelInfer, as it arrived."""

    request: pb.ModelInferRequest
    metadata: dict[str, str]
    remaining: float | None

    @property
    def texts(self) -> list[bytes]:
        return unpack_texts(self.request.raw_input_contents[0], self.request.inputs[0].shape[0])


@dataclass(slots=True)
class FakeTriton(GRPCInferenceServiceServicer):  # type: ignore[misc]
    """`behaviours` says by the model's name what ModelInfer does; any other model answers well-formed nonsense."""

    models: dict[str, config_pb.ModelConfig]
    address: str = "127.0.0.1:0"
    version: str = "2.70.0"
    stall: float = 0
    """Seconds until it says that it is alive."""
    ready: dict[str, bool] = field(default_factory=dict)
    behaviours: dict[str, Behaviour] = field(default_factory=dict)
    asked: list[Asked] = field(default_factory=list)
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    cancelled: asyncio.Event = field(default_factory=asyncio.Event)
    options: Sequence[tuple[str, int]] = ()
    """Of the gRPC server."""
    _server: Any = None

    @classmethod
    @asynccontextmanager
    async def serving(cls, models: Mapping[str, config_pb.ModelConfig]) -> "AsyncIterator[FakeTriton]":
        fake = cls(dict(models))
        await fake.start()
        try:
            yield fake
        finally:
            await fake.stop()

    async def start(self) -> None:
        self._server = grpc.aio.server(options=[("grpc.so_reuseport", 0), *self.options])
        add_GRPCInferenceServiceServicer_to_server(self, self._server)
        port = self._server.add_insecure_port(self.address)
        self.address = f"127.0.0.1:{port}"
        await self._server.start()

    async def stop(self, grace: float | None = None) -> None:
        """gRPC waits until each call's last reference is gone, and an idle loop collects no garbage by itself."""
        stopping = asyncio.ensure_future(self._server.stop(grace))
        for _ in range(100):
            if (await asyncio.wait((stopping,), timeout=0.1))[0]:
                return
            gc.collect()
        raise TimeoutError("the server does not stop")

    def forget(self) -> None:
        """What one test has done here."""
        self.behaviours.clear()
        self.ready.clear()
        self.asked.clear()
        self.arrived.clear()
        self.cancelled.clear()

    async def ServerLive(  # noqa: N802
        self, request: pb.ServerLiveRequest, context: grpc.aio.ServicerContext
    ) -> pb.ServerLiveResponse:
        await asyncio.sleep(self.stall)
        return pb.ServerLiveResponse(live=True)

    async def ServerMetadata(  # noqa: N802
        self, request: pb.ServerMetadataRequest, context: grpc.aio.ServicerContext
    ) -> pb.ServerMetadataResponse:
        return pb.ServerMetadataResponse(name="triton", version=self.version)

    async def ModelReady(  # noqa: N802
        self, request: pb.ModelReadyRequest, context: grpc.aio.ServicerContext
    ) -> pb.ModelReadyResponse:
        return pb.ModelReadyResponse(ready=request.name in self.models and self.ready.get(request.name, True))

    async def ModelConfig(  # noqa: N802
        self, request: pb.ModelConfigRequest, context: grpc.aio.ServicerContext
    ) -> pb.ModelConfigResponse:
        return pb.ModelConfigResponse(config=self.models[request.name])

    async def ModelMetadata(  # noqa: N802
        self, request: pb.ModelMetadataRequest, context: grpc.aio.ServicerContext
    ) -> pb.ModelMetadataResponse:
        return pb.ModelMetadataResponse(name=request.name, versions=["1"])

    async def ModelInfer(  # noqa: N802
        self, request: pb.ModelInferRequest, context: grpc.aio.ServicerContext
    ) -> pb.ModelInferResponse:
        self.asked.append(Asked(request, dict(context.invocation_metadata()), context.time_remaining()))
        self.arrived.set()
        try:
            return await self.behaviours.get(request.model_name, self.answer)(request, context)
        except asyncio.CancelledError:
            self.cancelled.set()
            raise

    async def answer(self, request: pb.ModelInferRequest, context: grpc.aio.ServicerContext) -> pb.ModelInferResponse:
        return self.well_formed(request)

    def well_formed(self, request: pb.ModelInferRequest) -> pb.ModelInferResponse:
        """Every output that was asked for, of the shape that the config declares; a free dimension has no rows."""
        response = pb.ModelInferResponse(model_name=request.model_name, model_version="1", id=request.id)
        outputs = {output.name: output for output in self.models[request.model_name].output}
        batch = request.inputs[0].shape[0]
        for asked in reversed(request.outputs):  # Triton's order is its own
            output = outputs[asked.name]
            dtype = config_pb.DataType.Name(output.data_type).removeprefix("TYPE_").replace("STRING", "BYTES")
            shape = (batch, *(max(0, size) for size in output.dims))
            put(response, asked.name, dtype, shape, plain(dtype, prod(shape)))
        return response


def plain(dtype: str, count: int) -> bytes:
    if dtype == "BYTES":
        return pack_texts([b""] * count)
    return array(TYPECODES[dtype], bytes(count * array(TYPECODES[dtype]).itemsize)).tobytes()


def put(response: pb.ModelInferResponse, name: str, dtype: str, shape: tuple[int, ...], raw: bytes) -> None:
    """Add an output, or replace the one of that name."""
    for at, output in enumerate(response.outputs):
        if output.name == name:
            output.datatype, output.shape[:] = dtype, shape
            response.raw_output_contents[at] = raw
            return
    response.outputs.add(name=name, datatype=dtype, shape=shape)
    response.raw_output_contents.append(raw)


def seen(response: pb.ModelInferResponse) -> Answer:
    """As it is read when it has come over the wire."""
    return read_answer(response.SerializeToString())


def bent(fake: FakeTriton, bend: Callable[[pb.ModelInferResponse], None]) -> Behaviour:
    async def behave(request: pb.ModelInferRequest, context: grpc.aio.ServicerContext) -> pb.ModelInferResponse:
        response = fake.well_formed(request)
        bend(response)
        return response

    return behave


def aborting(code: grpc.StatusCode, message: str) -> Behaviour:
    async def behave(request: pb.ModelInferRequest, context: grpc.aio.ServicerContext) -> pb.ModelInferResponse:
        await context.abort(code, message)
        raise AssertionError

    return behave


async def never(request: pb.ModelInferRequest, context: grpc.aio.ServicerContext) -> pb.ModelInferResponse:
    await asyncio.sleep(60)
    raise AssertionError("nobody waits that long")
