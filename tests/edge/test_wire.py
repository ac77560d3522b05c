"""Below HTTP's clients: heads and bodies that are broken, endless, enormous or slow."""

import asyncio

import pytest

from tests.edge.raw import connected, head
from tests.fakes.triton import FakeTriton
from tests.gateway.problems import CANARY, assert_problem
from tests.gateway.process import RunningGateway

MEGABYTE = 2**20
JSON = "Content-Type: application/json"


def key(gateway: RunningGateway) -> str:
    return f"Authorization: Bearer {gateway.tenants.keys['open']}"


CLASSIFY, CHUNKED = "POST /v1/classify", "Transfer-Encoding: chunked"
MALFORMED = {
    "no Host": head("GET /livez", host=None),
    "two Hosts": head("GET /livez", f"Host: {CANARY}"),
    "two Hosts alike": head("GET /livez", "Host: conch"),
    "an empty Host": head("GET /livez", "Host:", host=None),
    "a Host with a path": head("GET /livez", host=f"conch/{CANARY}"),
    "a Host with a user": head("GET /livez", host=f"{CANARY}@conch"),
    "a list of Hosts": head("GET /livez", host=f"conch,{CANARY}"),
    "a Host that is not ASCII": head("GET /livez", host="bücher"),
    "a port that is none": head("GET /livez", host="conch:65536"),
    "another host in the target": head(f"GET http://{CANARY}/livez"),
    "a user in the target": head("GET http://user@conch/livez"),
    "another scheme in the target": head("GET ftp://conch/livez"),
    "a target that is no path": head("GET livez"),
    "a target with a fragment": head(f"GET /livez#{CANARY}"),
    "a target of raw UTF-8": head("GET /lïvez"),
    "a blank in the target": head(f"GET /livez {CANARY}"),
    "a tunnel": head("CONNECT conch:80"),
    "a tunnel to a path": head("CONNECT /livez"),
    "a tunnel with a body": head("CONNECT /v1/classify", JSON, "Content-Length: 5") + b"abcde",
    "HTTP/2 in the form of HTTP/1": head("GET /livez").replace(b"HTTP/1.1", b"HTTP/2.0"),
    "a star for a path": head("GET *"),
    "HTTP/2 without asking": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "chunks of HTTP/1.0": head(CLASSIFY, JSON, CHUNKED).replace(b"HTTP/1.1", b"HTTP/1.0") + b"0\r\n\r\n",
    "chunks of gzip": head(CLASSIFY, JSON, "Transfer-Encoding: gzip, chunked") + b"0\r\n\r\n",
    "another coding": head(CLASSIFY, JSON, "Transfer-Encoding: xchunked") + b"0\r\n\r\n",
    "chunked and identity": head(CLASSIFY, JSON, "Transfer-Encoding: chunked, identity") + b"0\r\n\r\n",
    "chunked twice": head(CLASSIFY, JSON, CHUNKED, CHUNKED) + b"0\r\n\r\n",
    "two types": head(CLASSIFY, JSON, f"Content-Type: {CANARY}"),
    "a bare carriage return": head("GET /livez", f"X-A: b\r{CANARY}"),
    "a carriage return too many": head("GET /livez").replace(b"conch\r\n", b"conch\r\r\n"),
    "Content-Length with Transfer-Encoding": head(CLASSIFY, JSON, "Content-Length: 4", CHUNKED) + b"0\r\n\r\n",
    "Transfer-Encoding with Content-Length": head(CLASSIFY, JSON, CHUNKED, "Content-Length: 4") + b"0\r\n\r\n",
    "two lengths": head(CLASSIFY, JSON, "Content-Length: 4", "Content-Length: 5") + b"abcde",
    "a list of lengths": head(CLASSIFY, JSON, "Content-Length: 4, 4") + b"abcd",
    "the same length twice": head(CLASSIFY, JSON, "Content-Length: 4", "Content-Length: 4") + b"abcd",
    "a length in hex": head(CLASSIFY, JSON, "Content-Length: 0x4") + b"abcd",
    "no length in its field": head(CLASSIFY, JSON, "Content-Length:"),
    "a length that is no number": head(CLASSIFY, JSON, f"Content-Length: {CANARY}"),
    "a length below 0": head(CLASSIFY, JSON, "Content-Length: -1"),
    "a length with a sign": head(CLASSIFY, JSON, "Content-Length: +4") + b"abcd",
    "a length beyond 64 bits": head(CLASSIFY, JSON, "Content-Length: " + "9" * 30),
    "bare line feeds": head("GET /livez").replace(b"\r\n", b"\n"),
    "a folded field": head("GET /livez", "X-A: b\r\n " + CANARY),
    "a blank before the colon": head("GET /livez", f"X-A : {CANARY}"),
    "a NUL in a field": head("GET /livez", f"X-A: {CANARY}\x00"),
    "a field without a name": head("GET /livez", f": {CANARY}"),
    "no HTTP": CANARY.encode() + b"\r\n\r\n",
    "a method that nobody knows": head(f"{CANARY} /livez"),
    "another version": head("GET /livez").replace(b"HTTP/1.1", b"HTTP/3.9"),
    "a TLS hello": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 64,
    "bytes of no alphabet": bytes(range(256)),
}


@pytest.mark.parametrize("request_bytes", MALFORMED.values(), ids=MALFORMED)
async def test_a_head_that_can_be_read_in_two_ways_is_malformed_and_closes(
    staged: RunningGateway, request_bytes: bytes
) -> None:
    async with connected(staged.address) as line:
        await line.send(request_bytes)
        answer = await line.answer()
        assert_problem(answer, 400, "malformed_request")
        assert answer.headers["connection"] == "close"
        assert await line.is_closed()


LARGE = {
    "one large field": head("GET /livez", f"X-A: {CANARY * 2000}"),
    "many small fields": head("GET /livez", *(f"X-{at}: {CANARY}" for at in range(101))),
    "many middling fields": head("GET /livez", *(f"X-{at}: {'x' * 250}" for at in range(90))),
    "a target beyond the head": head("GET /" + "x" * 20_000),
}


@pytest.mark.parametrize("request_bytes", LARGE.values(), ids=LARGE)
async def test_a_head_that_is_too_large_is_refused(staged: RunningGateway, request_bytes: bytes) -> None:
    async with connected(staged.address) as line:
        await line.send(request_bytes)
        assert_problem(await line.answer(), 431, "headers_too_large")
        assert await line.is_closed()


async def test_what_is_refused_before_it_is_a_request_is_counted_and_logged_too(staged: RunningGateway) -> None:
    before = await staged.count("conch_requests_total", route="unmatched", status="431", code="headers_too_large")
    async with connected(staged.address) as line:
        await line.send(LARGE["one large field"])
        answer = await line.answer()
    assert await staged.count("conch_requests_total", route="unmatched", status="431", code="headers_too_large") == before + 1
    [logged] = [line for line in (await staged.logged()).splitlines() if answer.headers["x-request-id"] in line]
    assert '"status":431' in logged


async def test_a_head_without_end_is_refused_once_it_is_too_large(staged: RunningGateway) -> None:
    async with connected(staged.address) as line:
        await line.send(head("GET /livez")[:-2] + b"X-A: ")
        for _ in range(20):
            await line.send(b"x" * 1000)
            await asyncio.sleep(0)
        assert_problem(await line.answer(), 431, "headers_too_large")


@pytest.mark.parametrize("beginning", [b"", b"G", head("GET /livez")[:-2]], ids=["nothing", "a letter", "most of it"])
async def test_a_head_that_does_not_come_is_late(staged: RunningGateway, beginning: bytes) -> None:
    async with connected(staged.address) as line:
        await line.send(beginning)
        assert_problem(await line.answer(), 408, "request_timeout")
        assert await line.is_closed()


async def test_a_head_that_drips_is_late(staged: RunningGateway) -> None:
    async with connected(staged.address) as line:
        await line.send(head("GET /livez")[:-2])
        async with line.dripping(b"X-A: y\r\n"):
            assert_problem(await line.answer(), 408, "request_timeout")


async def test_the_second_head_on_a_connection_has_a_limit_too(staged: RunningGateway) -> None:
    async with connected(staged.address) as line:
        await line.send(head("GET /livez"))
        assert (await line.answer()).status_code == 200
        await line.send(b"GET /livez HTTP/1.1\r\n")
        assert_problem(await line.answer(), 408, "request_timeout")


BODIES = {
    "a chunk and no more": (CHUNKED, b"5\r\n[1,2,\r\n"),
    "a part of the length": ("Content-Length: 9", b"[1,2,"),
    "nothing": (CHUNKED, b""),
}


@pytest.mark.parametrize(("field", "beginning"), BODIES.values(), ids=BODIES)
async def test_a_body_without_end_is_late_and_closes(staged: RunningGateway, field: str, beginning: bytes) -> None:
    async with connected(staged.address) as line:
        await line.send(head(CLASSIFY, key(staged), JSON, field) + beginning)
        assert_problem(await line.answer(), 408, "request_timeout")
        assert await line.is_closed()


async def test_a_body_that_drips_is_late(staged: RunningGateway) -> None:
    async with connected(staged.address) as line:
        await line.send(head(CLASSIFY, key(staged), JSON, CHUNKED))
        async with line.dripping(b"1\r\n \r\n"):
            assert_problem(await line.answer(), 408, "request_timeout")


async def test_a_body_that_is_declared_too_large_is_refused_before_it_comes(staged: RunningGateway) -> None:
    async with connected(staged.address) as line:
        await line.send(head(CLASSIFY, key(staged), JSON, f"Content-Length: {50 * MEGABYTE}", "Expect: 100-continue"))
        assert_problem(await line.answer(), 413, "too_large")


async def test_a_chunked_body_is_refused_as_soon_as_it_is_too_large(staged: RunningGateway) -> None:
    async with connected(staged.address) as line:
        await line.send(head(CLASSIFY, key(staged), JSON, CHUNKED))
        for _ in range(5):
            await line.send(b"100000\r\n" + b" " * MEGABYTE + b"\r\n")
        assert_problem(await line.answer(), 413, "too_large")


@pytest.mark.parametrize("chunk", [b"zz\r\n", b"-1\r\n", b"fffffffffffffffff\r\n", b"1\r\nab\r\n"])
async def test_a_broken_chunk_is_malformed(staged: RunningGateway, chunk: bytes) -> None:
    async with connected(staged.address) as line:
        await line.send(head(CLASSIFY, key(staged), JSON, CHUNKED) + chunk)
        assert_problem(await line.answer(), 400, "malformed_request")
        assert await line.is_closed()


@pytest.mark.parametrize("field", ["Connection: keep-alive", "Connection: close"])
async def test_http_1_0_needs_no_host_and_is_closed(staged: RunningGateway, field: str) -> None:
    async with connected(staged.address) as line:
        await line.send(head("GET /livez", field, host=None).replace(b"HTTP/1.1", b"HTTP/1.0"))
        assert (await line.answer()).status_code == 200
        assert await line.is_closed()


@pytest.mark.parametrize("target", ["http://conch/livez", "HTTP://CONCH/livez?a", "/livez?http://other/"])
async def test_the_form_that_proxies_are_sent_is_taken_where_it_agrees_with_host(staged: RunningGateway, target: str) -> None:
    async with connected(staged.address) as line:
        await line.send(head(f"GET {target}"))
        assert (await line.answer()).status_code == 200


OFFERS = {
    "HTTP/2, as Java's client offers it": ("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAEAAEAA"),
    "a web socket": ("Connection: keep-alive, Upgrade", "Upgrade: websocket"),
}


@pytest.mark.parametrize("offer", OFFERS.values(), ids=OFFERS)
@pytest.mark.parametrize("framing", [b"", b"chunked"], ids=["length", "chunked"])
async def test_an_offer_to_upgrade_is_passed_over_and_the_body_is_read(
    staged: RunningGateway, stage: FakeTriton, offer: tuple[str, ...], framing: bytes
) -> None:
    body = b'{"model":"words","inputs":["a"]}'
    field = "Transfer-Encoding: chunked" if framing else f"Content-Length: {len(body)}"
    content = b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body) if framing else body
    request = head(CLASSIFY, key(staged), JSON, *offer, field) + content
    async with connected(staged.address) as line:
        await line.send(request * 2 + head("GET /livez"))
        assert [(await line.answer()).status_code for _ in range(3)] == [200, 200, 200]
    assert [asked.texts for asked in stage.asked] == [[b"a"], [b"a"]]


async def test_a_thousand_offers_in_one_segment_are_passed_over(staged: RunningGateway) -> None:
    async with connected(staged.address) as line:
        await line.send(head("GET /livez", *OFFERS["a web socket"]) * 1500)
        for _ in range(1500):
            assert (await line.answer()).status_code == 200


async def test_what_is_offered_may_end_the_connection_too(staged: RunningGateway) -> None:
    async with connected(staged.address) as line:
        await line.send(head("GET /livez", "Connection: Upgrade, close", "Upgrade: h2c"))
        assert (await line.answer()).headers["connection"] == "close"
        assert await line.is_closed()


async def test_a_trailer_is_no_header(staged: RunningGateway) -> None:
    trailer = f"X-API-Key: {staged.tenants.keys['open']}\r\nX-Request-Id: trailed\r\n".encode()
    async with connected(staged.address) as line:
        await line.send(head(CLASSIFY, JSON, CHUNKED) + b"2\r\n{}\r\n0\r\n" + trailer + b"\r\n")
        answer = await line.answer()
    assert_problem(answer, 401, "unauthenticated")
    assert answer.headers["x-request-id"] != "trailed"


async def test_a_trailer_without_end_is_too_large(staged: RunningGateway) -> None:
    async with connected(staged.address) as line:
        await line.send(head(CLASSIFY, key(staged), JSON, CHUNKED) + b"2\r\n{}\r\n0\r\n" + b"X-A: b\r\n" * 4000)
        assert_problem(await line.answer(), 431, "headers_too_large")
        assert await line.is_closed()


async def test_chunks_may_be_small_and_have_extensions(staged: RunningGateway) -> None:
    body = b'{"model":"words","inputs":["%s"]}' % (b"a" * 150)
    async with connected(staged.address) as line:
        await line.send(head(CLASSIFY, key(staged), JSON, CHUNKED))
        for at, byte in enumerate(body):
            await line.send(b"1;n=%d\r\n%c\r\n" % (at, byte))
        await line.send(b"0\r\n\r\n")
        assert (await line.answer()).status_code == 200


@pytest.mark.parametrize("padding", [b"1;" + b"x" * 2**19, (b"1;" + b"x" * 999 + b"\r\na\r\n") * 999], ids=["one", "many"])
async def test_extensions_may_not_be_most_of_a_body(staged: RunningGateway, padding: bytes) -> None:
    async with connected(staged.address) as line:
        await line.send(head(CLASSIFY, key(staged), JSON, CHUNKED))
        await line.send(padding)
        assert_problem(await line.answer(), 400, "malformed_request")
        assert await line.is_closed()


async def test_a_body_is_asked_for_where_the_caller_waits_for_that(staged: RunningGateway) -> None:
    body = b'{"model":"words","inputs":["a"]}'
    async with connected(staged.address) as line:
        await line.send(head(CLASSIFY, key(staged), JSON, "Expect: 100-continue", f"Content-Length: {len(body)}"))
        assert (await line.answer()).status_code == 100
        await line.send(body)
        assert (await line.answer()).status_code == 200


async def test_blanks_around_a_value_are_no_part_of_it(staged: RunningGateway, stage: FakeTriton) -> None:
    body = b'{"model":"words","inputs":["a"]}'
    fields = ("Host:\t conch", key(staged), JSON, f"Content-Length: {len(body)}", "X-Request-Id: mine")
    async with connected(staged.address) as line:
        await line.send(head(CLASSIFY, *(f"{field} \t" for field in fields), host=None) + body)
        answer = await line.answer()
    assert (answer.status_code, answer.headers["x-request-id"]) == (200, "mine"), answer.text


async def test_who_speaks_http_1_0_is_not_asked_for_its_body(staged: RunningGateway, stage: FakeTriton) -> None:
    body = b'{"model":"words","inputs":["a"]}'
    request = head(CLASSIFY, key(staged), JSON, "Expect: 100-continue", f"Content-Length: {len(body)}")
    async with connected(staged.address) as line:
        await line.send(request.replace(b"HTTP/1.1", b"HTTP/1.0") + body)
        assert (await line.answer()).status_code == 200


async def test_no_answer_tells_what_server_it_is(staged: RunningGateway) -> None:
    async with connected(staged.address) as line:
        await line.send(head("GET /livez"))
        assert "server" not in (await line.answer()).headers


async def test_requests_in_a_row_are_answered_in_order(staged: RunningGateway) -> None:
    async with connected(staged.address) as line:
        await line.send(b"".join(head("GET /livez", f"X-Request-Id: r{at}") for at in range(3)))
        assert [(await line.answer()).headers["x-request-id"] for _ in range(3)] == ["r0", "r1", "r2"]


async def test_what_follows_a_refused_request_is_not_run(staged: RunningGateway) -> None:
    async with connected(staged.address) as line:
        smuggled = head("GET /livez", "X-Request-Id: smuggled")
        await line.send(head(CLASSIFY, JSON, "Content-Length: 4", CHUNKED) + b"0\r\n\r\n" + smuggled)
        assert_problem(await line.answer(), 400, "malformed_request")
        assert await line.is_closed()
    assert "smuggled" not in await staged.logged()


async def test_a_caller_who_hangs_up_within_the_body_is_counted_as_gone(staged: RunningGateway) -> None:
    before = await staged.count("conch_requests_total", status="499")
    async with connected(staged.address) as line:
        await line.send(head(CLASSIFY, key(staged), JSON, "Content-Length: 9") + b"[1,")
    async with asyncio.timeout(5):
        while await staged.count("conch_requests_total", status="499", code="client_closed") != before + 1:
            await asyncio.sleep(0.02)
