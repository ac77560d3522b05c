"""The connection to a Triton: how it breaks, what it must never do, and who is let in."""

import os
import socket
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import grpc
import pytest
from tritonclient.grpc import service_pb2 as pb

from app.deadline import Deadline
from app.triton.client import CallFailed, ChannelOptions, Endpoint, Tls
from tests.fakes.frames import DATA, END_STREAM, GRPC, Line, Script, message, scripted
from tests.fakes.triton import FakeTriton, never
from tests.gateway.stage import staged_models
from tests.triton.certificates import Authority

REQUEST = pb.ModelInferRequest(model_name="words").SerializeToString()
HTML = (b"content-type", b"text/html")
OK = (b"grpc-status", b"0")


async def failure(address: str, options: ChannelOptions | None = None, seconds: float = 5) -> str:
    endpoint = Endpoint(address, options or ChannelOptions())
    try:
        with pytest.raises(CallFailed) as raised:
            await endpoint.infer(REQUEST, Deadline.after(seconds), ())
        return raised.value.failure.name
    finally:
        await endpoint.close()


async def goes_away_before_it_began(line: Line, stream: int) -> None:
    line.goaway(0, 0, b"bye")


async def goes_away_and_closes(line: Line, stream: int) -> None:
    line.goaway(stream)
    line.cut()


async def is_annoyed_by_pings(line: Line, stream: int) -> None:
    line.goaway(0, 11, b"too_many_pings")
    line.cut()


async def resets_as_a_fault(line: Line, stream: int) -> None:
    line.reset(stream, 2)


async def resets_as_refused(line: Line, stream: int) -> None:
    line.reset(stream, 7)


async def resets_as_cancelled(line: Line, stream: int) -> None:
    line.reset(stream, 8)


async def closes(line: Line, stream: int) -> None:
    line.cut()


async def closes_within_the_answer(line: Line, stream: int) -> None:
    line.headers(stream, GRPC)
    line.send(DATA, 0, stream, message(b"x" * 100)[:20])
    line.cut()


async def ends_without_trailers(line: Line, stream: int) -> None:
    line.headers(stream, GRPC)
    line.send(DATA, END_STREAM, stream, message(b""))


async def never_sends_trailers(line: Line, stream: int) -> None:
    line.headers(stream, GRPC)
    line.send(DATA, 0, stream, message(b""))


async def is_a_proxy_without_triton(line: Line, stream: int) -> None:
    line.headers(stream, HTML, status=b"502", end=True)


async def is_another_server(line: Line, stream: int) -> None:
    line.headers(stream, HTML, status=b"404", end=True)


async def says_ok_and_nothing_else(line: Line, stream: int) -> None:
    line.headers(stream, GRPC)
    line.trailers(stream, OK)


async def answers_what_is_no_message(line: Line, stream: int) -> None:
    line.headers(stream, GRPC)
    line.send(DATA, 0, stream, message(b"\xff\xff\xff"))
    line.trailers(stream, OK)


async def answers_with_a_code_that_there_is_not(line: Line, stream: int) -> None:
    line.headers(stream, GRPC)
    line.trailers(stream, (b"grpc-status", b"99"), (b"grpc-message", b"hunter2"))


async def speaks_http_1(line: Line, stream: int) -> None:
    line.writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")


SCRIPTS: Mapping[Script, str] = {
    goes_away_before_it_began: "cut_off",
    goes_away_and_closes: "cut_off",
    is_annoyed_by_pings: "cut_off",
    resets_as_a_fault: "cut_off",
    resets_as_refused: "cut_off",
    resets_as_cancelled: "cancelled_by_server",
    closes: "cut_off",
    closes_within_the_answer: "cut_off",
    ends_without_trailers: "cut_off",
    never_sends_trailers: "deadline",
    is_a_proxy_without_triton: "cut_off",
    is_another_server: "unimplemented",
    says_ok_and_nothing_else: "bad_upstream_response",
    answers_what_is_no_message: "bad_upstream_response",
    answers_with_a_code_that_there_is_not: "failed",
    speaks_http_1: "cut_off",
}


@pytest.mark.parametrize(("script", "name"), SCRIPTS.items(), ids=lambda value: getattr(value, "__name__", value))
async def test_a_peer_that(script: Script, name: str) -> None:
    async with scripted(script) as address:
        assert await failure(address, seconds=0.5 if name == "deadline" else 5) == name


async def test_a_server_that_ends_connections_by_age_cuts_a_call_off_and_none_that_comes_after() -> None:
    fake = FakeTriton(staged_models(), options=[("grpc.max_connection_age_ms", 200), ("grpc.max_connection_age_grace_ms", 100)])
    await fake.start()
    fake.behaviours["words"] = never
    assert await failure(fake.address) == "cut_off"
    endpoint = Endpoint(fake.address, ChannelOptions())
    for _ in range(40):  # through several connections
        await endpoint.live()
    await endpoint.close()
    await fake.stop()


async def test_a_call_that_a_stopping_server_cancels_was_cut_off() -> None:
    fake = FakeTriton(staged_models())
    await fake.start()

    async def stop(request: pb.ModelInferRequest, context: grpc.aio.ServicerContext) -> pb.ModelInferResponse:
        await fake.stop()
        raise AssertionError

    fake.behaviours["words"] = stop
    assert await failure(fake.address) in ("cut_off", "cancelled_by_server")


async def test_nobody_listens() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        assert await failure(f"127.0.0.1:{taken.getsockname()[1]}") == "unreachable"


async def test_a_host_that_swallows_packets_is_noticed_before_the_deadline() -> None:
    with socket.socket() as full:  # the queue of those who want to connect is full: Linux drops what comes
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        fillers = [socket.socket() for _ in range(3)]
        for filler in fillers:
            filler.setblocking(False)
            filler.connect_ex(full.getsockname())
        assert await failure(f"127.0.0.1:{full.getsockname()[1]}", seconds=20) == "unreachable"
        for filler in fillers:
            filler.close()


async def test_a_peer_that_vanishes_is_given_up_in_seconds_and_no_ping_can_annoy_triton() -> None:
    async with FakeTriton.serving(staged_models()) as fake:
        endpoint = Endpoint(fake.address, ChannelOptions())
        await endpoint.live()
        timeouts = patience_with(int(fake.address.rpartition(":")[2]))
        await endpoint.close()
    assert 5_000 in timeouts
    arguments = dict(ChannelOptions().arguments())
    assert int(arguments["grpc.keepalive_time_ms"]) > 300_000, "Triton allows a ping without data every five minutes"
    assert arguments["grpc.keepalive_permit_without_calls"] == 0


def patience_with(port: int) -> list[int]:
    """Milliseconds that this process's connections to the port may stay unacknowledged."""
    found = []
    for entry in list(Path("/proc/self/fd").iterdir()):
        # Sockets alone: of anything else the copy would stay open, and with it the pipe by which a child knows that we live.
        if not entry.is_socket():
            continue
        with suppress(OSError), socket.socket(fileno=os.dup(int(entry.name))) as line:
            if line.family != socket.AF_UNIX and line.getpeername()[1] == port:
                found.append(line.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT))
    return found


async def test_the_secret_of_restricted_protocols_goes_out_with_every_call_and_is_not_shown() -> None:
    options = ChannelOptions(metadata=(("triton-grpc-protocol-key", "hunter2"),), tls=Tls(key=b"hunter2"))
    assert "hunter2" not in repr(options)
    async with FakeTriton.serving(staged_models()) as fake:
        endpoint = Endpoint(fake.address, ChannelOptions(metadata=options.metadata))
        request = pb.ModelInferRequest(model_name="words", inputs=[{"shape": [1, 1]}]).SerializeToString()
        await endpoint.infer(request, Deadline.after(5), (("traceparent", "00-1"),))
        await endpoint.close()
        [asked] = fake.asked
    assert asked.metadata["triton-grpc-protocol-key"] == "hunter2"
    assert asked.metadata["traceparent"] == "00-1"


async def test_tls_trusts_those_that_the_authority_has_named_and_no_others(tmp_path: Path) -> None:
    trusted, stranger = Authority.found(tmp_path), Authority.found(tmp_path, "stranger")
    files = trusted.issue("triton.example")
    server = grpc.aio.server()
    credentials = grpc.ssl_server_credentials([(files[1].read_bytes(), files[0].read_bytes())])
    port = server.add_secure_port("127.0.0.1:0", credentials)
    await server.start()
    address = f"127.0.0.1:{port}"

    def options(authority: Authority, name: str) -> ChannelOptions:
        return ChannelOptions(tls=Tls(authority.file.read_bytes(), server_name=name))

    # It is there and has no Triton: whoever is let in hears that.
    assert await failure(address, options(trusted, "triton.example")) == "unimplemented"
    assert await failure(address, options(trusted, "")) == "unreachable"
    assert await failure(address, options(trusted, "other.example")) == "unreachable"
    assert await failure(address, options(stranger, "triton.example")) == "unreachable"
    assert await failure(address) in ("unreachable", "cut_off")
    await server.stop(None)
