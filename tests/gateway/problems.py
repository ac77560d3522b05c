"""What every error must be, whoever it is that answers it."""

from collections.abc import Mapping

import httpx

from app.api.schemas import Problem

CANARY = "zanzibar-tangerine"
"""In every bad body and in every text: it may be in no error and in no log."""


def assert_problem(response: httpx.Response, status: int, code: str, *pointers: str) -> Problem:
    assert CANARY not in response.text
    assert CANARY not in str(response.headers)
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    content = response.json()
    assert set(content) <= {*Problem.model_fields, "error"}
    problem = Problem.model_validate(content)
    assert (problem.status, problem.code, problem.type) == (status, code, f"/problems/{code}")
    assert problem.title
    assert problem.detail.endswith(".")
    assert response.headers["x-request-id"] == problem.request_id
    if pointers:
        assert tuple(flaw.pointer for flaw in problem.errors or ()) == pointers
    return problem


def canaries(keys: Mapping[str, str]) -> tuple[str, ...]:
    return (CANARY, *keys.values(), "hunter2")
