import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from app.admission.redis_address import RedisAddress, packed
from app.admission.redis_wire import RedisLost, RedisRefused, RedisSilent, RedisWire, dial
from tests.admission.redis_server import RedisServer


def echo(text: str) -> bytes:
    return packed("ECHO", text)


@pytest.fixture
async def wire(server: RedisServer) -> AsyncIterator[RedisWire]:
    wire = await dial(RedisAddress.parse(server.url), budget=5.0, patience=5.0, lost=lambda: None)
    yield wire
    wire.close()


async def test_commands_of_one_turn_of_the_loop_leave_in_one_write(wire: RedisWire) -> None:
    writes: list[bytes] = []
    transport = wire._transport
    assert transport is not None
    write = transport.write

    class Tapped:
        def write(self, written: bytes) -> None:
            writes.append(written)
            write(written)

    wire._transport = Tapped()  # type: ignore[assignment]
    replies = await asyncio.gather(*(wire.call(echo(f"{i}")) for i in range(100)))
    wire._transport = transport
    assert replies == [b"%d" % i for i in range(100)]
    assert len(writes) == 1


async def test_ten_thousand_random_cancellations_mismatch_no_reply(wire: RedisWire) -> None:
    late: list[bytes] = []
    chance = random.Random(7)
    answered = 0

    async def ask(number: int) -> None:
        nonlocal answered
        assert await wire.call(echo(f"{number}"), late.append) == b"%d" % number
        answered += 1

    for start in range(0, 20_000, 200):
        tasks = [asyncio.create_task(ask(number)) for number in range(start, start + 200)]
        victims = chance.sample(tasks, 100)
        for victim in victims:
            if chance.random() < 0.1:
                await asyncio.sleep(0)
            victim.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(result is None or isinstance(result, asyncio.CancelledError) for result in results)
    assert await wire.call(echo("end")) == b"end"
    assert answered >= 10_000
    assert len(late) > 1000
    assert answered + len(late) <= 20_000


async def test_an_error_reply_concerns_only_its_own_command(wire: RedisWire) -> None:
    results = await asyncio.gather(
        wire.call(echo("a")), wire.call(packed("NOSUCH")), wire.call(echo("b")), return_exceptions=True
    )
    assert (results[0], results[2]) == (b"a", b"b")
    assert isinstance(results[1], RedisRefused)


async def test_a_reply_that_comes_too_late_reaches_only_its_own_place(
    own_server: RedisServer, until: Callable[..., Awaitable[None]]
) -> None:
    own_server.start()
    wire = await dial(RedisAddress.parse(own_server.url), budget=0.05, patience=5.0, lost=lambda: None)
    late: list[bytes] = []
    with own_server.frozen():
        with pytest.raises(RedisSilent):
            await wire.call(echo("first"), late.append)
        second = wire.call(echo("second"), late.append)
        assert wire.silence() > 0
    assert await second == b"second"
    assert late == [b"first"]
    assert wire.silence() == 0
    wire.close()


async def test_a_broken_connection_fails_all_who_wait_and_is_told_once(own_server: RedisServer) -> None:
    own_server.start()
    lost = []
    address = RedisAddress.parse(own_server.url)
    wire = await dial(address, budget=5.0, patience=5.0, lost=lambda: lost.append(1))
    with own_server.frozen():
        waiting = [wire.call(echo("x")) for _ in range(10)]
        await asyncio.sleep(0.01)
        assert own_server.process is not None
        own_server.process.kill()
    results = await asyncio.gather(*waiting, return_exceptions=True)
    assert {type(result) for result in results} == {RedisLost}
    assert lost == [1]
    assert not wire.alive
    with pytest.raises(RedisLost):
        await wire.call(echo("y"))
    wire.send(echo("z"))


@pytest.mark.parametrize("noise", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"+PONG\r\n+PONG\r\n+PONG\r\n", b""])
async def test_a_peer_that_is_not_redis_is_given_up(noise: bytes) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        writer.write(noise)
        writer.close()

    stranger = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = stranger.sockets[0].getsockname()[1]
    async with stranger:
        try:
            wire = await dial(RedisAddress.parse(f"redis://127.0.0.1:{port}"), budget=0.2, patience=0.2, lost=lambda: None)
        except RedisLost:
            return
        with pytest.raises(RedisLost):
            await wire.call(echo("x"))


@pytest.mark.parametrize(
    ("url", "host", "port", "path", "greeting"),
    [
        ("redis://", "localhost", 6379, None, [b"PING"]),
        ("redis://h:1/3", "h", 1, None, [b"SELECT", b"PING"]),
        ("redis://:p%40@h", "h", 6379, None, [b"AUTH", b"PING"]),
        ("redis://u:p@h/0", "h", 6379, None, [b"AUTH", b"PING"]),
        ("unix:///tmp/redis.sock?db=2", "localhost", 6379, "/tmp/redis.sock", [b"SELECT", b"PING"]),
    ],
)
def test_an_address_is_read_from_its_url(url: str, host: str, port: int, path: str | None, greeting: list[bytes]) -> None:
    address = RedisAddress.parse(url)
    assert (address.host, address.port, address.path, address.tls) == (host, port, path, None)
    assert len(address.greeting) == len(greeting)
    assert all(word in command for word, command in zip(greeting, address.greeting, strict=True))


def test_an_address_never_shows_its_secret() -> None:
    address = RedisAddress.parse("rediss://alice:s3cret@redis.example:6380/1")
    assert repr(address) == str(address) == "redis.example:6380"
    assert address.tls is not None
    assert address.tls.context().check_hostname


@pytest.mark.parametrize("url", ["http://h", "localhost:6379", "redis://h:port", ""])
def test_a_url_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  the words are redis-py's
        RedisAddress.parse(url)
