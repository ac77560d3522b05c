"""HEAD, OPTIONS and 405: what each path takes, and who may ask from another origin."""

import pytest

from tests.gateway.problems import CANARY, assert_problem
from tests.gateway.process import RunningGateway

PATHS = {
    "/livez": "GET, HEAD, OPTIONS",
    "/readyz": "GET, HEAD, OPTIONS",
    "/docs": "GET, HEAD, OPTIONS",
    "/openapi.json": "GET, HEAD, OPTIONS",
    "/v1/models": "GET, HEAD, OPTIONS",
    "/v1/models/words": "GET, HEAD, OPTIONS",
    "/v1/classify": "OPTIONS, POST",
    "/v1/embeddings": "OPTIONS, POST",
}


@pytest.mark.parametrize(("path", "allow"), PATHS.items())
async def test_options_tells_what_a_path_takes_and_needs_no_key(staged: RunningGateway, path: str, allow: str) -> None:
    answer = await staged.client.options(path)
    assert (answer.status_code, answer.headers["allow"], answer.content) == (204, allow, b"")
    assert not [name for name in answer.headers if name.startswith("access-control")], "off by default"


async def test_options_of_nothing_is_not_found(staged: RunningGateway) -> None:
    assert_problem(await staged.client.options(f"/{CANARY}"), 404, "not_found")


@pytest.mark.parametrize(("path", "allow"), PATHS.items())
async def test_another_method_is_told_what_there_is(staged: RunningGateway, path: str, allow: str) -> None:
    for method in {"GET", "POST", "PUT", "PATCH", "DELETE", "TRACE"} - set(allow.split(", ")):
        answer = await staged.client.request(method, path, headers=staged.tenants.authorization("open"))
        assert_problem(answer, 405, "method_not_allowed")
        assert answer.headers["allow"] == allow
        assert answer.json()["detail"] == f"This path does not take this method, but {allow}."


@pytest.mark.parametrize("path", [path for path, allow in PATHS.items() if "HEAD" in allow])
async def test_head_is_get_without_its_body(staged: RunningGateway, path: str) -> None:
    headers = staged.tenants.authorization("open")
    whole, bare = [await staged.client.request(method, path, headers=headers) for method in ("GET", "HEAD")]
    assert (bare.status_code, bare.content) == (200, b"")
    for name in ("content-type", "content-length"):
        assert bare.headers[name] == whole.headers[name]


async def test_head_is_refused_as_get_is_and_counted_by_its_template(staged: RunningGateway) -> None:
    headers = staged.tenants.authorization("open")
    before = await staged.count("conch_requests_total", route="/v1/models/{model}", status="200")
    assert (await staged.client.head("/v1/models")).status_code == 401
    assert (await staged.client.head("/v1/classify", headers=headers)).status_code == 405
    assert (await staged.client.head(f"/{CANARY}", headers=headers)).status_code == 404
    assert (await staged.client.head("/v1/models/words", headers=headers)).status_code == 200
    assert await staged.count("conch_requests_total", route="/v1/models/{model}", status="200") == before + 1


@pytest.mark.parametrize("path", ["/livez/", "/v1/classify/", "/v1/models/", "/docs/"])
async def test_a_slash_too_many_is_another_path_and_leads_nowhere(staged: RunningGateway, path: str) -> None:
    for method in ("GET", "POST"):
        answer = await staged.client.request(method, path, headers=staged.tenants.authorization("open"))
        assert_problem(answer, 404, "not_found")
