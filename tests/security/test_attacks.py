"""What an adversary tries at the running gateway, without a key or with one. `docs/security.md` lists it."""

import httpx
import pytest

from tests.edge.raw import connected, head
from tests.fakes.triton import FakeTriton
from tests.gateway.problems import CANARY, assert_problem
from tests.gateway.process import RunningGateway

CROOKED = [
    *("//v1/models", "/%2fv1/models", "/V1/models", "/v1%2fmodels", "/./v1/models", "/v1/models/", "/v1/models;/livez"),
    *(
        "/livez/v1/models",
        "/livez;/v1/models",
        "/livez%00/v1/models",
        "/livez%0a",
        "/livez/../v1/models",
        "/v1/models/../../livez",
    ),
    *("/docs/../v1/models", "/docs/..%2fv1%2fmodels", "/docs/%2e%2e/v1/models", "/docs;/../v1/models", "/docs%5c..%5cv1"),
    *("/docs/..%2f..%2f..%2fpages%2ferrors.md", "/docs/%00", "/docs/%ff", "/problems/%ff", "/problems/..%2f..%2fetc%2fpasswd"),
    *("/problems/%0d%0aX-Forged:1", "/v1/models?path=/docs/", "/v1/models?/livez", "/%", "/%zz", "/metrics", "/docs/metrics"),
]


@pytest.mark.parametrize("path", CROOKED)
async def test_no_way_of_writing_a_path_opens_a_door(staged: RunningGateway, path: str) -> None:
    async with connected(staged.address) as line:
        await line.send(head(f"GET {path}", "Connection: close"))
        answer = await line.answer()
    assert answer.status_code in (401, 404), answer.text
    assert "x-forged" not in answer.headers


SMUGGLED = {
    "another method": "X-HTTP-Method-Override: OPTIONS",
    "another path": "X-Original-URL: /livez",
    "a path rewritten": "X-Rewrite-URL: /livez",
    "a prefix": "X-Forwarded-Prefix: /docs",
    "another host": "X-Forwarded-Host: livez",
    "an address of the house": "X-Forwarded-For: 127.0.0.1",
    "a key for a proxy": "Proxy-Authorization: Bearer {key}",
    "a key under another name": "X_API_Key: {key}",
    "a key and something": "Authorization: Bearer {key},x",
    "two keys in one": "X-API-Key: {key}, {key}",
    "a key behind a tab": "Authorization: Bearer\t{key}",
    "a key in a cookie": "Cookie: authorization=Bearer {key}",
}


@pytest.mark.parametrize("field", SMUGGLED.values(), ids=SMUGGLED)
async def test_no_other_header_stands_for_a_key_a_path_or_a_method(staged: RunningGateway, field: str) -> None:
    async with connected(staged.address) as line:
        await line.send(head("GET /v1/models", field.format(key=staged.tenants.keys["open"])))
        assert_problem(await line.answer(), 401, "unauthenticated")


PIPELINED = {
    "a body with a GET": (head("GET /livez", "Content-Length: {size}"), 1),
    "a body with a HEAD": (head("HEAD /livez", "Content-Length: {size}"), 1),
    "a body of a stranger": (head("POST /v1/classify", "Content-Length: {size}"), 1),
    "an underscore": (head("GET /livez", "Content_Length: {size}"), 2),
    "a close": (head("GET /livez", "Connection: close"), 1),
    "an upgrade": (head("GET /livez", "Connection: Upgrade", "Upgrade: h2c", "Content-Length: {size}"), 1),
}


@pytest.mark.parametrize(("first", "count"), PIPELINED.values(), ids=PIPELINED)
async def test_a_body_is_never_read_as_a_second_request(staged: RunningGateway, first: bytes, count: int) -> None:
    """`count` answers and no more: what stands in a body is not run, whatever it looks like."""
    second = head("GET /readyz")
    async with connected(staged.address) as line:
        last = b"" if b"close" in first else head("GET /livez", "Connection: close")
        await line.send(first.replace(b"{size}", str(len(second)).encode()) + second + last)
        raw = b""
        while piece := await line.reader.read(2**16):
            raw += piece
    assert raw.count(b"HTTP/1.1 ") == count + bool(last)


@pytest.mark.parametrize(
    "model", ["WORDS", "words ", "words\0", "words\u200b", "ｗords", "../words", "words/versions/1", "words;x", "%77ords", "*"]
)
async def test_a_model_has_one_name_and_no_other(staged: RunningGateway, model: str) -> None:
    assert_problem(await staged.classify(CANARY, model=model, tenant="some"), 404, "unknown_model")


@pytest.mark.parametrize("model", ["words", "heads", "WORDS", CANARY])
async def test_what_a_tenant_may_not_see_is_answered_like_what_is_not_there(staged: RunningGateway, model: str) -> None:
    for path in ("/v1/models/{}", "/v2/models/{}", "/v2/models/{}/ready", "/v2/models/{}/config"):
        assert_problem(await staged.get(path.format(model), tenant="some"), 404, "unknown_model")


async def test_no_cache_keeps_what_one_tenant_was_told(staged: RunningGateway, stage: FakeTriton) -> None:
    for answer in (
        await staged.get("/v1/models"),
        await staged.get("/v1/models/words"),
        await staged.get("/v2/models/words"),
        await staged.classify("a", model="words"),
        await staged.get("/v1/models/nothing"),
        await staged.client.get("/v1/models"),
    ):
        assert "no-store" in answer.headers["cache-control"], answer.request.url


async def test_nobody_makes_the_gateway_compress_a_megabyte_without_a_key(staged: RunningGateway) -> None:
    for path in ("/docs/redoc.standalone.js", "/docs/swagger-ui-bundle.js"):
        answer = await staged.client.get(path, headers={"accept-encoding": "gzip"})
        assert answer.status_code == 200
        assert "content-encoding" not in answer.headers
        assert "public" in answer.headers["cache-control"]


@pytest.mark.parametrize("ranges", ["bytes=" + ",".join(f"{at}-" for at in range(1000)), "bytes=0-0," * 1000 + "1-1"])
async def test_many_ranges_are_no_more_than_the_whole(staged: RunningGateway, ranges: str) -> None:
    answer = await staged.client.get("/docs/swagger-ui-bundle.js", headers={"range": ranges})
    whole = await staged.client.get("/docs/swagger-ui-bundle.js")
    assert len(answer.content) <= len(whole.content)


async def test_a_stranger_writes_no_line_and_no_label_of_its_own(staged: RunningGateway) -> None:
    forged = b'\\n{"level":"error","forged":1}\x9b31m'
    names = (b"user-agent", b"x-request-id", b"traceparent", b"tracestate", b"x-forwarded-for", b"x-api-key")
    for method in ("GET", "POST", "DELETE", "PROPFIND", "M-SEARCH", "TRACE"):
        answer = await staged.client.request(method, f"/{CANARY}", headers=[(name, forged) for name in names])
        assert_problem(answer, 401, "unauthenticated")
    exposition = (await staged.client.get(f"{staged.admin}/metrics")).text
    for told in (await staged.logged(), exposition):
        assert "forged" not in told
        assert CANARY not in told


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/", 404),
        ("POST", "/status", 405),
        ("DELETE", "/metrics", 405),
        ("TRACE", "/status", 405),
        ("GET", "/v1/models", 404),
    ],
)
async def test_the_admin_listener_has_two_pages_that_change_nothing(
    staged: RunningGateway, method: str, path: str, status: int
) -> None:
    assert (await staged.client.request(method, f"{staged.admin}{path}")).status_code == status


async def test_the_admin_listener_has_the_caps_of_the_other(staged: RunningGateway) -> None:
    answer = await staged.client.get(f"{staged.admin}/status", headers={"x-a": "b" * 60_000})
    assert_problem(answer, 431, "headers_too_large")


async def test_the_admin_pages_are_not_on_the_public_listener(staged: RunningGateway) -> None:
    public = httpx.URL(staged.client.base_url)
    for path in ("/metrics", "/status"):
        assert_problem(await staged.client.get(public.join(path)), 401, "unauthenticated")
        assert_problem(await staged.get(path), 404, "not_found")
