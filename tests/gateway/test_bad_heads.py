"""Requests that are wrong before their body is read: media, methods, paths, ids."""

import json

import pytest

from tests.gateway.problems import CANARY, assert_problem
from tests.gateway.process import RunningGateway
from tests.gateway.test_bad_input import JSON, body, every_task, send

MEDIA = {
    "none": {},
    "text": {"content-type": "text/plain"},
    "another charset": {"content-type": "application/json; charset=latin-1"},
    "a form": {"content-type": "multipart/form-data; boundary=" + CANARY},
    "a patch": {"content-type": "application/json-patch+json"},
    "a brotli": {**JSON, "content-encoding": "br"},
    "an encoding that nobody knows": {**JSON, "content-encoding": CANARY},
}


@every_task
@pytest.mark.parametrize("headers", MEDIA.values(), ids=MEDIA)
async def test_other_media_are_refused(
    staged: RunningGateway, path: str, model: str, field: str, headers: dict[str, str]
) -> None:
    content = body(model, field, json.dumps([CANARY]).encode())
    assert_problem(await send(staged, path, content, headers), 415, "unsupported_media_type")


@pytest.mark.parametrize("media", ["application/json", "application/json; charset=utf-8", 'APPLICATION/JSON;charset="UTF-8"'])
async def test_json_in_utf_8_is_taken_however_it_is_spelled(staged: RunningGateway, media: str) -> None:
    answer = await send(staged, "/v1/classify", body("words", "inputs", b'["a"]'), {"content-type": media})
    assert answer.status_code == 200


@every_task
@pytest.mark.parametrize("method", ["GET", "PUT", "PATCH", "DELETE", "HEAD", "TRACE", "PROPFIND"])
async def test_another_method_is_not_allowed(staged: RunningGateway, path: str, model: str, field: str, method: str) -> None:
    answer = await staged.client.request(method, path, headers=staged.tenants.authorization("open"))
    assert (answer.status_code, answer.headers["allow"]) == (405, "OPTIONS, POST")
    if method != "HEAD":
        assert_problem(answer, 405, "method_not_allowed")


@pytest.mark.parametrize(
    "path",
    [
        "/v1",
        "/v1/classify/",
        "//v1/classify",
        "/V1/classify",
        f"/{CANARY}",
        "/v1/classify%2f",
        "/v1/../metrics",
        "/metrics",
        "/status",
    ],
)
async def test_an_unknown_path_is_not_found(staged: RunningGateway, path: str) -> None:
    assert_problem(await staged.post(path, {}), 404, "not_found")


async def test_a_target_that_is_too_long_is_refused(staged: RunningGateway) -> None:
    assert_problem(await staged.get("/v1/models?" + "q" * 9000), 414, "uri_too_long")


@pytest.mark.parametrize("given", ["", "a b", "x" * 65, CANARY + "/", "ünïcode", "a\tb"])
async def test_a_request_id_of_another_form_is_replaced(staged: RunningGateway, given: str) -> None:
    answer = await staged.client.get("/livez", headers=[(b"x-request-id", given.encode())])
    assert answer.headers["x-request-id"] not in ("", given)


async def test_a_request_id_of_the_right_form_is_kept(staged: RunningGateway) -> None:
    answer = await staged.client.get("/livez", headers={"x-request-id": "a-B_9.z"})
    assert answer.headers["x-request-id"] == "a-B_9.z"
