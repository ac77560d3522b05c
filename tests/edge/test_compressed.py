"""Compressed answers and compressed bodies."""

import gzip
import json
import zlib
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from app.edge.compressed import coding_for
from app.edge.inflated import inflated
from app.errors import Malformed
from tests.edge.raw import connected, head
from tests.fakes.triton import FakeTriton
from tests.gateway.problems import CANARY, assert_problem
from tests.gateway.process import RunningGateway

ASKS = [
    (b"gzip", "gzip"),
    (b"gzip, deflate, br, zstd", "zstd"),
    (b"gzip;q=0.9, zstd;q=0.8", "gzip"),
    (b"zstd;q=0, gzip;q=0.5", "gzip"),
    (b"gzip;q=0, *;q=0.5", "zstd"),
    (b"x-gzip", "gzip"),
    (b"*", "zstd"),
    (b"GZIP ; q=0.5", "gzip"),
    (b"br, *;q=0.1", "zstd"),
    (b"identity;q=0.5, gzip;q=0.5", "gzip"),
    (b"identity, gzip;q=0.5, zstd;q=0.9", ""),
    (b"", ""),
    (b"identity", ""),
    (b"br", ""),
    (b"gzip;q=0", ""),
    (b"*;q=0", ""),
    (b"gzip;q=0.000", ""),
    (b"gzip;q=", ""),
    (b"gzip;q=nan", ""),
    (b"gzip;level=1", ""),
    (b"notgzip", ""),
    (b"\xff;q=\xff", ""),
]


@pytest.mark.parametrize(("field", "coding"), ASKS)
def test_who_asks_for_which_coding(field: bytes, coding: str) -> None:
    assert coding_for(field) == coding


TEXTS = ["x" * (at % 90 + 1) for at in range(300)]
BODY = json.dumps({"model": "words", "inputs": TEXTS}).encode()
FEW = json.dumps({"model": "words", "inputs": ["a"]}).encode()


async def post(gateway: RunningGateway, body: bytes, **headers: str) -> Any:
    fields = {"content-type": "application/json", **{name.replace("_", "-"): value for name, value in headers.items()}}
    return await gateway.client.post("/v1/classify", content=body, headers={**gateway.tenants.authorization("open"), **fields})


@pytest.mark.parametrize("coding", ["gzip", "zstd"])
async def test_a_large_answer_is_compressed_for_who_asks(staged: RunningGateway, stage: FakeTriton, coding: str) -> None:
    plain, small = [await post(staged, BODY, accept_encoding=wish) for wish in ("identity", coding)]
    assert "content-encoding" not in plain.headers
    assert small.headers["content-encoding"] == coding
    assert plain.json() == small.json()
    assert int(small.headers["content-length"]) < int(plain.headers["content-length"]) / 5
    for answer in (plain, small):
        assert "accept-encoding" in answer.headers["vary"]


async def test_a_small_answer_is_left_as_it_is(staged: RunningGateway, stage: FakeTriton) -> None:
    assert "content-encoding" not in (await post(staged, FEW, accept_encoding="gzip")).headers


@pytest.mark.parametrize("coding", ["gzip", "zstd"])
async def test_a_very_large_answer_is_compressed_piece_by_piece(staged: RunningGateway, stage: FakeTriton, coding: str) -> None:
    answer = await post(staged, json.dumps({"model": "words", "inputs": ["a"] * 6000}).encode(), accept_encoding=coding)
    assert (answer.status_code, answer.headers["content-encoding"]) == (200, coding)
    assert len(answer.content) > 64 * 1024
    assert len(answer.json()["results"]) == 6000


async def test_a_compressed_body_is_read(staged: RunningGateway, stage: FakeTriton) -> None:
    for coding in ("gzip", "x-gzip", "GZIP", "identity"):
        body = BODY if coding == "identity" else gzip.compress(BODY)
        answer = await post(staged, body, content_encoding=coding)
        assert answer.status_code == 200, answer.text
        assert answer.json()["usage"]["characters"] == len("".join(TEXTS))


async def test_a_compressed_body_may_come_in_pieces(staged: RunningGateway, stage: FakeTriton) -> None:
    body = gzip.compress(FEW)
    async with connected(staged.address) as line:
        fields = ("Content-Type: application/json", "Content-Encoding: gzip", "Transfer-Encoding: chunked")
        await line.send(head("POST /v1/classify", f"X-API-Key: {staged.tenants.keys['open']}", *fields))
        for at in range(len(body)):
            await line.send(b"1\r\n%c\r\n" % body[at : at + 1])
        await line.send(b"0\r\n\r\n")
        assert (await line.answer()).status_code == 200


@pytest.mark.parametrize("coding", ["br", "zstd", "deflate", "gzip, gzip", "compress", CANARY, "gzip;q=1"])
async def test_another_coding_is_told_which_one_is_taken(staged: RunningGateway, coding: str) -> None:
    answer = await post(staged, gzip.compress(FEW), content_encoding=coding)
    assert_problem(answer, 415, "unsupported_media_type")
    assert answer.headers["accept-encoding"] == "gzip"


BROKEN = {
    "no gzip": FEW,
    "zlib": zlib.compress(FEW),
    "cut short": gzip.compress(FEW)[:-5],
    "a wrong checksum": gzip.compress(FEW)[:-8] + b"\0" * 8,
    "something behind it": gzip.compress(FEW) + CANARY.encode(),
    "another one behind it": gzip.compress(FEW) + gzip.compress(FEW),
    "nothing": b"",
    "one byte": b"\x1f",
}


@pytest.mark.parametrize("body", BROKEN.values(), ids=BROKEN)
async def test_what_is_no_gzip_is_malformed(staged: RunningGateway, body: bytes) -> None:
    assert_problem(await post(staged, body, content_encoding="gzip"), 400, "malformed_request")


async def test_a_bomb_goes_off_no_further_than_the_cap(staged: RunningGateway) -> None:
    bomb = gzip.compress(b" " * 2**27, 9)
    assert len(bomb) < 2**18
    assert_problem(await post(staged, bomb, content_encoding="gzip"), 413, "too_large")


def received(*messages: bytes, more: int = 0) -> Callable[[], Awaitable[Any]]:
    events = [
        *(
            {"type": "http.request", "body": body, "more_body": at < len(messages) - 1 or more}
            for at, body in enumerate(messages)
        ),
        {"type": "http.disconnect"},
    ]

    async def receive() -> Any:
        return events.pop(0)

    return receive


async def drained(receive: Callable[[], Awaitable[Any]]) -> tuple[list[int], bytes]:
    sizes, body = [], b""
    while True:
        message = await receive()
        sizes.append(len(message["body"]))
        body += message["body"]
        if not message["more_body"]:
            return sizes, body


async def test_a_piece_is_never_large_and_what_follows_the_body_is_told() -> None:
    content = bytes(10_000_000)
    receive = inflated(b"gzip", {"headers": []}, received(gzip.compress(content)))
    sizes, body = await drained(receive)
    assert body == content
    assert max(sizes) <= 2**18
    assert (await receive())["type"] == "http.disconnect"


@pytest.mark.parametrize("size", [0, 1, 2**18 - 1, 2**18, 2**18 + 1, 2**19])
async def test_sizes_around_a_piece_are_whole(size: int) -> None:
    content = b"ab" * (size // 2) + b"a" * (size % 2)
    compressed = gzip.compress(content)
    for cut in (0, 1, 10, len(compressed) - 1, len(compressed)):
        assert (await drained(inflated(b"gzip", {"headers": []}, received(compressed[:cut], compressed[cut:]))))[1] == content


async def test_what_follows_in_a_message_of_its_own_is_noticed() -> None:
    with pytest.raises(Malformed):
        await drained(inflated(b"gzip", {"headers": []}, received(gzip.compress(b"a"), b"", b"b")))
