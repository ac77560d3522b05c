"""One Triton, over one gRPC channel of its own."""

from dataclasses import dataclass

import grpc
import grpc.aio
from tritonclient.grpc import service_pb2 as pb
from tritonclient.grpc.service_pb2_grpc import GRPCInferenceServiceStub

from app.deadline import Deadline
from app.errors import DeadlineExceeded
from app.triton.model import Model
from app.triton.status import Failure, classify

Metadata = tuple[tuple[str, str], ...]

_CONTROL_TIMEOUT = 2.0
"""Seconds. Triton serves every call but inference on one thread, so that a busy repository makes them slow."""


class CallFailed(Exception):
    """A call to Triton failed; `message` is Triton's own text and must not leave the process but for the redacted log."""

    def __init__(self, failure: Failure, message: str) -> None:
        super().__init__(failure.name)
        self.failure = failure
        self.message = message


@dataclass(frozen=True, slots=True)
class ChannelOptions:
    message_bytes: int = 64 * 1024 * 1024
    """The largest message either way. Triton takes up to 2 GiB, so that this is the only guard."""

    def arguments(self) -> list[tuple[str, int]]:
        return [
            ("grpc.max_send_message_length", self.message_bytes),
            ("grpc.max_receive_message_length", self.message_bytes),
            # Without it, all channels of a process with the same target share one TCP connection.
            ("grpc.use_local_subchannel_pool", 1),
            # After an outage a channel waits up to two minutes before it looks again; Triton comes back sooner.
            ("grpc.initial_reconnect_backoff_ms", 100),
            ("grpc.min_reconnect_backoff_ms", 100),
            ("grpc.max_reconnect_backoff_ms", 1000),
            ("grpc.enable_retries", 0),
        ]


class Endpoint:
    """`serving` names the ensembles that may be called here; `Survey` keeps it true, and a failed call shrinks it at once."""

    def __init__(self, address: str, options: ChannelOptions) -> None:
        self.address = address
        self.serving: frozenset[str] = frozenset()
        self.reachable = False
        self.version = ""
        self.in_flight = 0
        self._channel = grpc.aio.insecure_channel(address, options=options.arguments())
        self._control = GRPCInferenceServiceStub(self._channel)
        # Raw bytes in: the request was serialised by its ensemble.
        self._infer = self._channel.unary_unary(
            "/inference.GRPCInferenceService/ModelInfer", response_deserializer=pb.ModelInferResponse.FromString
        )

    async def infer(self, request: bytes, deadline: Deadline, metadata: Metadata) -> pb.ModelInferResponse:
        """Raises `CallFailed`, and `DeadlineExceeded` where no time is left to ask."""
        remaining = deadline.remaining()
        if remaining <= 0:
            raise DeadlineExceeded("the time given was used up before the model was asked")
        self.in_flight += 1
        try:
            return await self._infer(request, timeout=remaining, metadata=metadata)
        except grpc.aio.AioRpcError as error:
            raise _failed(error) from error
        finally:
            self.in_flight -= 1

    async def ready(self) -> bool:
        response = await self._ask("ServerReady", pb.ServerReadyRequest())
        return bool(response.ready)

    async def metadata(self) -> pb.ServerMetadataResponse:
        return await self._ask("ServerMetadata", pb.ServerMetadataRequest())

    async def model_ready(self, name: str) -> bool:
        response = await self._ask("ModelReady", pb.ModelReadyRequest(name=name))
        return bool(response.ready)

    async def model(self, name: str) -> Model:
        response = await self._ask("ModelConfig", pb.ModelConfigRequest(name=name))
        return Model.of(response.config)

    async def index(self) -> list[str]:
        """The names of the models that are loaded."""
        response = await self._ask("RepositoryIndex", pb.RepositoryIndexRequest(ready=True))
        return [model.name for model in response.models]

    async def close(self) -> None:
        await self._channel.close()

    async def _ask(self, method: str, request: object) -> "pb.Message":
        try:
            return await getattr(self._control, method)(request, timeout=_CONTROL_TIMEOUT)
        except grpc.aio.AioRpcError as error:
            raise _failed(error) from error


def _failed(error: grpc.aio.AioRpcError) -> CallFailed:
    message = error.details() or ""
    return CallFailed(classify(error.code(), message), message)
