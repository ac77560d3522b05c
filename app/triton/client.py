"""One Triton, over one gRPC channel of its own."""

import asyncio
from dataclasses import dataclass, field
from time import monotonic

import grpc
import grpc.aio
from tritonclient.grpc import service_pb2 as pb

from app.deadline import Deadline
from app.errors import DeadlineExceeded
from app.triton.answer import Answer
from app.triton.health import Health, Tell
from app.triton.line import Line
from app.triton.model import Model
from app.triton.status import BAD_ANSWER, GONE, STOPPING, WORDLESS, Failure, classify

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
class Tls:
    """PEM, as read from files. Without `ca` the roots of gRPC's own are trusted; `certificate` and `key` are ours, for mTLS."""

    ca: bytes | None = None
    certificate: bytes | None = None
    key: bytes | None = field(default=None, repr=False)
    server_name: str = ""
    """Whom Triton's certificate must name, where that is not the host of its address."""


@dataclass(frozen=True, slots=True)
class ChannelOptions:
    message_bytes: int = 64 * 1024 * 1024
    """The largest message either way. Triton takes up to 2 GiB, so that this is the only guard."""
    tls: Tls | None = None
    metadata: Metadata = field(default=(), repr=False)
    """Goes out with every call. It opens restricted protocols, and is a secret."""

    def open(self, address: str, server_name: str) -> grpc.aio.Channel:
        arguments = self.arguments()
        if self.tls is None:
            return grpc.aio.insecure_channel(address, options=arguments)
        if name := self.tls.server_name or server_name:
            arguments.append(("grpc.ssl_target_name_override", name))
        credentials = grpc.ssl_channel_credentials(self.tls.ca, self.tls.key, self.tls.certificate)
        return grpc.aio.secure_channel(address, credentials, options=arguments)

    def arguments(self) -> list[tuple[str, int | str]]:
        return [
            ("grpc.max_send_message_length", self.message_bytes),
            ("grpc.max_receive_message_length", self.message_bytes),
            # Without it, all channels of a process with the same target share one TCP connection.
            ("grpc.use_local_subchannel_pool", 1),
            # After an outage a channel waits up to two minutes before it looks again; Triton comes back sooner.
            ("grpc.initial_reconnect_backoff_ms", 100),
            ("grpc.max_reconnect_backoff_ms", 1000),
            # Despite its name, how long one attempt to connect may take.
            ("grpc.min_reconnect_backoff_ms", 500),
            ("grpc.enable_retries", 0),
            # Triton answers pings that come more often than every five minutes with a GOAWAY. The survey asks every second, so
            # that none is ever due; but only with keepalive does Linux give up on a peer that vanished without a word, after
            # the timeout below instead of a quarter of an hour.
            ("grpc.keepalive_time_ms", 330_000),
            ("grpc.keepalive_timeout_ms", 5_000),
            ("grpc.keepalive_permit_without_calls", 0),
        ]


class Endpoint:
    """`server_name` is the name that the address was found by, which the certificate must have."""

    def __init__(self, address: str, options: ChannelOptions, server_name: str = "", tell: Tell | None = None) -> None:
        self.address = address
        self.options = options
        self.health = Health(address, tell)
        self.version = ""
        self.heard = 0.0
        """When it last answered an inference, if only with an error, on the monotonic clock."""
        self.closed = False
        self._server_name = server_name
        self._line = Line(options.open(address, server_name))
        self._former: dict[Line, asyncio.Task[None]] = {}

    @property
    def in_flight(self) -> int:
        return self._line.in_flight

    async def infer(self, request: bytes, deadline: Deadline, metadata: Metadata) -> Answer:
        """Raises `CallFailed`, and `DeadlineExceeded` where no time is left to ask."""
        remaining = deadline.remaining()
        if remaining <= 0:
            raise DeadlineExceeded("the time given was used up before the model was asked")
        try:
            response = await self._line.infer(request, remaining, metadata + self.options.metadata)
        except grpc.aio.AioRpcError as error:
            raise self._failed(error) from error
        self.heard = monotonic()
        if response is None:
            raise CallFailed(BAD_ANSWER, "")
        return response

    def _failed(self, error: grpc.aio.AioRpcError) -> CallFailed:
        """Not bound to a name where it is raised: it would hold the frame that holds it, until garbage is collected."""
        failed = _failed(error)
        if failed.failure not in WORDLESS:
            self.heard = monotonic()
        return failed

    async def live(self) -> None:
        """Raises `CallFailed` unless it answers and is not about to end."""
        response = await self._ask("ServerLive", pb.ServerLiveRequest())
        if not response.live:
            raise CallFailed(STOPPING, "")

    async def metadata(self) -> pb.ServerMetadataResponse:
        return await self._ask("ServerMetadata", pb.ServerMetadataRequest())

    async def model_ready(self, name: str) -> bool:
        response = await self._ask("ModelReady", pb.ModelReadyRequest(name=name))
        return bool(response.ready)

    async def model(self, name: str) -> Model:
        config, metadata = await asyncio.gather(
            self._ask("ModelConfig", pb.ModelConfigRequest(name=name)),
            self._ask("ModelMetadata", pb.ModelMetadataRequest(name=name)),
        )
        return Model.of(config.config, tuple(metadata.versions))

    async def members(self, model: Model) -> dict[str, Model]:
        """The configs of its steps, as far as they can be had."""
        names = list(dict.fromkeys(name for name, _ in model.steps))
        answers = await asyncio.gather(*(self._member(name) for name in names))
        return {name: answer for name, answer in zip(names, answers, strict=True) if answer is not None}

    async def _member(self, name: str) -> Model | None:
        try:
            response = await self._ask("ModelConfig", pb.ModelConfigRequest(name=name))
        except CallFailed:
            return None
        return Model.of(response.config)

    async def index(self) -> list[str]:
        """The names of the models that are loaded."""
        response = await self._ask("RepositoryIndex", pb.RepositoryIndexRequest(ready=True))
        return [model.name for model in response.models]

    async def renew(self, options: ChannelOptions) -> None:
        """Go on over a new channel, once Triton has answered there; the former one is closed when its calls are over. Raises
        `CallFailed`, and then nothing has changed.
        """
        line = Line(options.open(self.address, self._server_name))
        try:
            await _asked(line, "ServerLive", pb.ServerLiveRequest(), options.metadata)
        except CallFailed:
            await line.close()
            raise
        if self.closed:
            await line.close()
            return
        former, self._line, self.options = self._line, line, options
        task = self._former[former] = asyncio.create_task(_finished(former))
        task.add_done_callback(lambda _: self._former.pop(former))

    async def retire(self) -> None:
        """Close it when its calls are over. Nobody may begin another one."""
        await asyncio.gather(self._line.idle(), *self._former.values())
        await self.close()

    async def close(self) -> None:
        self.closed = True
        for task in self._former.values():
            task.cancel()
        for line in (self._line, *self._former):
            await line.close()

    async def _ask(self, method: str, request: object) -> "pb.Message":
        if self.closed:
            raise CallFailed(GONE, "")
        return await _asked(self._line, method, request, self.options.metadata)


async def _finished(line: Line) -> None:
    await line.idle()
    await line.close()


async def _asked(line: Line, method: str, request: object, metadata: Metadata) -> "pb.Message":
    try:
        response = await getattr(line.control, method)(request, timeout=_CONTROL_TIMEOUT, metadata=metadata)
    except grpc.aio.AioRpcError as error:
        raise _failed(error) from error
    if response is None:
        raise CallFailed(BAD_ANSWER, "")
    return response


def _failed(error: grpc.aio.AioRpcError) -> CallFailed:
    message = error.details() or ""
    return CallFailed(classify(error.code(), message), message)
