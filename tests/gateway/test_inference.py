"""`/v2`, through the clients that NVIDIA ships, against a real Triton."""

import asyncio
import json
from array import array
from collections.abc import AsyncIterator
from typing import Any

import grpc
import numpy as np
import pytest
import pytest_asyncio
from pydantic import BaseModel
from tritonclient import http
from tritonclient.grpc import service_pb2 as pb
from tritonclient.http import aio
from tritonclient.utils import InferenceServerException, triton_to_np_dtype

from app.api.inference_schemas import InferResponse, Live, ModelConfig, ModelMetadata, Ready, ServerMetadata
from tests.fakes.triton import FakeTriton, aborting, bent, never, put
from tests.gateway.problems import CANARY, assert_problem
from tests.gateway.process import RunningGateway

SAMPLES: dict[str, list[Any]] = {
    "BOOL": [True, False],
    "UINT8": [0, 255],
    "UINT16": [0, 65_535],
    "UINT32": [0, 2**32 - 1],
    "UINT64": [0, 2**64 - 1],
    "INT8": [-128, 127],
    "INT16": [-32_768, 32_767],
    "INT32": [-(2**31), 2**31 - 1],
    "INT64": [-(2**63), 2**63 - 1],
    "FP16": [-65_504.0, 0.333],
    "BF16": [-1.5, 3e38],
    "FP32": [-3.4e38, 0.1],
    "FP64": [-1.7e308, 0.1],
    "BYTES": ["ünïcode \U0001f600", ""],
}


@pytest_asyncio.fixture(loop_scope="session")
async def client(gateway: RunningGateway) -> AsyncIterator[aio.InferenceServerClient]:
    async with aio.InferenceServerClient(str(gateway.address)) as client:
        yield client


def keyed(gateway: RunningGateway, tenant: str = "open") -> dict[str, str]:
    return gateway.tenants.authorization(tenant)


def texts(*values: str, binary: bool = True) -> Any:
    tensor = aio.InferInput("TEXT", [len(values), 1], "BYTES")
    return tensor.set_data_from_numpy(np.array([[value.encode()] for value in values], object), binary_data=binary)


def length(*values: int) -> dict[str, Any]:
    return {"name": "length", "shape": [len(values), 1], "datatype": "INT32", "data": list(values)}


async def test_the_client_of_asyncio_finds_what_it_needs(gateway: RunningGateway, client: aio.InferenceServerClient) -> None:
    headers = keyed(gateway)
    assert await client.is_server_live(headers)
    assert await client.is_server_ready(headers)
    assert (await client.get_server_metadata(headers))["extensions"] == ["binary_tensor_data", "model_configuration"]
    for version in ("", "1"):
        assert await client.is_model_ready("noop", version, headers)
        metadata = await client.get_model_metadata("noop", version, headers)
        assert metadata["versions"] == ["1"]
        assert metadata["inputs"] == [{"name": "TEXT", "datatype": "BYTES", "shape": [-1, 1]}]
        config = await client.get_model_config("noop", version, headers)
        assert (config["name"], config["max_batch_size"], config["input"][0]["data_type"]) == ("noop", 64, "TYPE_STRING")
        result = await client.infer("noop", [texts("abc", "d")], version, request_id="mine", headers=headers)
        assert result.as_numpy("SCORES")[:, 0].tolist() == [0.75, 0.5]
        assert result.get_response()["id"] == "mine"
    assert not await client.is_model_ready("noop", "7", headers)


async def test_the_client_that_blocks_finds_the_same(gateway: RunningGateway) -> None:
    def work() -> list[float]:
        with http.InferenceServerClient(str(gateway.address)) as client:
            headers = keyed(gateway)
            assert client.is_server_live(headers)
            assert client.is_server_ready(headers)
            assert client.is_model_ready("noop", headers=headers)
            assert client.get_model_metadata("noop", headers=headers)["name"] == "noop"
            assert client.get_model_config("noop", headers=headers)["name"] == "noop"
            tensor = http.InferInput("TEXT", [1, 1], "BYTES")
            tensor.set_data_from_numpy(np.array([[b"abc"]], object))
            compressed = {"request_compression_algorithm": "gzip", "response_compression_algorithm": "gzip"}
            for options in ({}, compressed):
                scores = client.infer("noop", [tensor], headers=headers, **options).as_numpy("SCORES")
            return list(scores[0].tolist())

    assert await asyncio.to_thread(work) == [0.75, 0.125, 0.125]


@pytest.mark.parametrize("dtype", SAMPLES)
async def test_every_datatype_comes_back_to_the_bit_as_json_and_as_bytes(
    gateway: RunningGateway, client: aio.InferenceServerClient, dtype: str
) -> None:
    values = SAMPLES[dtype]
    sent = np.array([values], triton_to_np_dtype(dtype))
    tensor = aio.InferInput(f"IN_{dtype}", [1, 2], dtype)
    output = f"OUT_{dtype}"
    for binary in (True, False):
        if binary or dtype not in ("FP16", "BF16"):
            tensor.set_data_from_numpy(sent, binary_data=binary)
        for back in (True, False):
            wanted = [aio.InferRequestedOutput(output, binary_data=back)]
            got = (await client.infer("identity", [tensor], outputs=wanted, headers=keyed(gateway))).as_numpy(output)
            expected = [value.encode() for value in values] if dtype == "BYTES" and back else sent[0]
            assert list(got[0]) == list(expected)
    data = sent[0].astype(float).tolist() if dtype in ("FP16", "BF16") else values
    body = {
        "inputs": [{"name": f"IN_{dtype}", "shape": [1, 2], "datatype": dtype, "data": [data]}],
        "outputs": [{"name": output}],
    }
    answer = (await gateway.post("/v2/models/identity/infer", body)).json()
    assert answer["outputs"] == [{"name": output, "datatype": dtype, "shape": [1, 2], "data": answered(sent[0], dtype, values)}]


def answered(sent: Any, dtype: str, values: list[Any]) -> list[Any]:
    return values if dtype == "BYTES" else list((sent.astype(float) if dtype == "BF16" else sent).tolist())


async def test_bytes_that_are_no_text_pass_where_no_text_is_read(
    gateway: RunningGateway, client: aio.InferenceServerClient
) -> None:
    tensor = aio.InferInput("IN_BYTES", [1, 2], "BYTES")
    tensor.set_data_from_numpy(np.array([[b"\xff\x00", b"\xed\xa0\x80"]], object))
    headers = keyed(gateway)
    wanted = [aio.InferRequestedOutput("OUT_BYTES")]
    got = (await client.infer("identity", [tensor], outputs=wanted, headers=headers)).as_numpy("OUT_BYTES")
    assert list(got[0]) == [b"\xff\x00", b"\xed\xa0\x80"]
    wanted = [aio.InferRequestedOutput("OUT_BYTES", binary_data=False)]
    with pytest.raises(InferenceServerException, match="ask for it with binary_data") as refused:
        await client.infer("identity", [tensor], outputs=wanted, headers=headers)
    assert refused.value.status() == "422"
    text = aio.InferInput("TEXT", [1, 1], "BYTES").set_data_from_numpy(np.array([[b"\xff"]], object))
    with pytest.raises(InferenceServerException, match="/inputs/0/data/0: This is not a text in UTF-8"):
        await client.infer("noop", [text], headers=headers)


@pytest.mark.parametrize(
    ("path", "shape"),
    [
        ("/v2", ServerMetadata),
        ("/v2/health/live", Live),
        ("/v2/health/ready", Ready),
        ("/v2/models/{}", ModelMetadata),
        ("/v2/models/{}/versions/1", ModelMetadata),
        ("/v2/models/{}/ready", Ready),
        ("/v2/models/{}/versions/1/ready", Ready),
        ("/v2/models/{}/config", ModelConfig),
        ("/v2/models/{}/versions/1/config", ModelConfig),
    ],
)
async def test_answers_are_what_the_document_says(gateway: RunningGateway, path: str, shape: type[BaseModel]) -> None:
    for model in ("noop", "identity", "questions"):
        answer = await gateway.get(path.format(model))
        assert shape.model_validate_json(answer.content, strict=True, extra="forbid")


async def test_a_model_that_can_not_be_served_is_not_ready_and_neither_is_the_server(
    staged: RunningGateway, stage: FakeTriton
) -> None:
    stage.ready["words"] = False
    async with asyncio.timeout(10):
        while (await staged.get("/v2/models/words/ready")).status_code == 200:
            await asyncio.sleep(0.05)
    for path in ("/v2/models/words/ready", "/v2/models/words", "/v2/models/words/config", "/v2/health/ready"):
        answer = await staged.get(path)
        assert answer.status_code == 503
        assert int(answer.headers["retry-after"]) >= 1
    assert_problem(await staged.post("/v2/models/words/infer", {"inputs": [TEXT]}), 503, "model_unavailable")
    assert (await staged.get("/v2/health/live")).status_code == 200
    assert (await staged.get("/v2/health/ready", "some")).status_code == 200, "it sees none but vectors"


async def test_only_the_outputs_that_are_asked_for_come_in_the_order_asked(gateway: RunningGateway) -> None:
    body = {"inputs": [{"name": "TEXT", "shape": [1, 1], "datatype": "BYTES", "data": ["abc"]}]}
    everything = (await gateway.post("/v2/models/noop/infer", body)).json()
    assert InferResponse.model_validate(everything, strict=True, extra="forbid")
    assert [output["name"] for output in everything["outputs"]] == ["SCORES", "TOKENS", "TRUNCATED", "ERROR"]
    body["outputs"] = [{"name": "TOKENS"}, {"name": "SCORES"}]
    some = (await gateway.post("/v2/models/noop/infer", body)).json()
    assert [output["name"] for output in some["outputs"]] == ["TOKENS", "SCORES"]
    assert "id" not in some


async def test_binary_and_json_outputs_mix_as_the_request_says(gateway: RunningGateway) -> None:
    body = {
        "inputs": [{"name": "TEXT", "shape": [1, 1], "datatype": "BYTES", "data": ["abc"]}],
        "outputs": [{"name": "TOKENS"}, {"name": "SCORES", "parameters": {"binary_data": False}}, {"name": "ERROR"}],
        "parameters": {"binary_data_output": True},
    }
    answer = await gateway.post("/v2/models/noop/infer", body)
    assert answer.headers["content-type"] == "application/octet-stream"
    size = int(answer.headers["inference-header-content-length"])
    tokens, scores, error = json.loads(answer.content[:size])["outputs"]
    assert (tokens["parameters"], error["parameters"]) == ({"binary_data_size": 4}, {"binary_data_size": 4})
    assert scores["data"] == [0.75, 0.125, 0.125]
    assert answer.content[size:] == array("i", [3]).tobytes() + bytes(4)


async def test_a_step_is_a_model_of_its_own_by_its_public_name_alone(gateway: RunningGateway) -> None:
    answer = await gateway.post("/v2/models/head-of-noop/infer", {"inputs": [length(3)]})
    assert answer.json()["outputs"] == [{"name": "SCORES", "datatype": "FP32", "shape": [1, 3], "data": [0.75, 0.125, 0.125]}]
    assert answer.json()["model_name"] == "head-of-noop"
    for path in ("", "/config", "/ready"):
        shown = await gateway.get(f"/v2/models/head-of-noop{path}")
        assert shown.status_code == 200
        assert "noop-head" not in shown.text
    assert_problem(await gateway.post("/v2/models/noop-head/infer", {"inputs": [length(3)]}), 404, "unknown_model")


async def test_a_step_has_no_task_but_is_listed(gateway: RunningGateway) -> None:
    card = (await gateway.get("/v1/models/head-of-noop")).json()
    assert (card["task"], card["available"]) == ("infer", True)
    refused = await gateway.classify("a", model="head-of-noop")
    assert_problem(refused, 422, "invalid_input", "/model")


@pytest.mark.parametrize("path", ["", "/ready", "/config", "/versions/1", "/versions/1/config", "/infer", "/versions/1/infer"])
async def test_what_a_tenant_may_not_see_is_not_there(gateway: RunningGateway, path: str) -> None:
    for model in ("echo", "nowhere"):
        url = f"/v2/models/{model}{path}"
        answer = await (gateway.post(url, {"inputs": [length(1)]}, "some") if "infer" in path else gateway.get(url, "some"))
        assert_problem(answer, 404, "unknown_model")
        assert answer.json()["error"]


@pytest.mark.parametrize("path", ["", "/health/live", "/health/ready", "/models/noop", "/models/noop/ready"])
async def test_nobody_looks_without_a_key(gateway: RunningGateway, path: str) -> None:
    answer = await gateway.client.get(f"/v2{path}")
    assert_problem(answer, 401, "unauthenticated")
    assert isinstance(answer.json()["error"], str)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/v2/repository/index"),
        ("POST", "/v2/repository/models/noop/load"),
        ("POST", "/v2/repository/models/noop/unload"),
        ("GET", "/v2/systemsharedmemory/status"),
        ("POST", "/v2/systemsharedmemory/region/r/register"),
        ("POST", "/v2/cudasharedmemory/unregister"),
        ("GET", "/v2/trace/setting"),
        ("POST", "/v2/models/noop/trace/setting"),
        ("GET", "/v2/logging"),
        ("POST", "/v2/logging"),
        ("GET", "/v2/models/noop/stats"),
        ("GET", "/v2/models/stats"),
        ("POST", "/v2/models/noop/generate"),
    ],
)
async def test_what_changes_or_watches_a_server_is_not_there(gateway: RunningGateway, method: str, path: str) -> None:
    answer = await gateway.client.request(method, path, json={}, headers=keyed(gateway))
    assert answer.status_code in (404, 405)
    assert isinstance(answer.json()["error"], str)


TEXT = {"name": "TEXT", "shape": [1, 1], "datatype": "BYTES", "data": [CANARY]}
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "a priority": ({"inputs": [TEXT], "parameters": {"priority": 1}}, "/parameters"),
    "a sequence": ({"inputs": [TEXT], "parameters": {"sequence_id": 1, "sequence_start": True}}, "/parameters"),
    "a parameter of the caller's own": ({"inputs": [TEXT], "parameters": {CANARY: CANARY}}, "/parameters"),
    "a time of nothing": ({"inputs": [TEXT], "parameters": {"timeout": 0}}, "/parameters/timeout"),
    "a classification": (
        {"inputs": [TEXT], "outputs": [{"name": "SCORES", "parameters": {"classification": 2}}]},
        "/outputs/0/parameters",
    ),
    "a region of shared memory": (
        {"inputs": [{**TEXT, "data": None, "parameters": {"shared_memory_region": CANARY}}]},
        "/inputs/0/parameters",
    ),
    "a batch that is too large": ({"inputs": [{**TEXT, "shape": [65, 1], "data": [CANARY] * 65}]}, "/inputs/0/shape"),
    "an empty text": ({"inputs": [{**TEXT, "data": [""]}]}, "/inputs/0/data/0"),
    "a text that is too long": ({"inputs": [{**TEXT, "data": [CANARY * 2000]}]}, "/inputs/0/data/0"),
    "another datatype": ({"inputs": [{**TEXT, "datatype": "INT32", "data": [1]}]}, "/inputs/0/datatype"),
    "an unknown input": ({"inputs": [{**TEXT, "name": CANARY}]}, "/inputs/0/name"),
    "an unknown output": ({"inputs": [TEXT], "outputs": [{"name": CANARY}]}, "/outputs/0/name"),
}


@pytest.mark.parametrize(("body", "pointer"), REFUSED.values(), ids=REFUSED)
async def test_what_is_outside_the_rules_is_pointed_to_and_not_repeated(
    gateway: RunningGateway, body: dict[str, Any], pointer: str
) -> None:
    answer = await gateway.post("/v2/models/noop/infer", body)
    problem = assert_problem(answer, 422, "invalid_input")
    assert pointer in [flaw.pointer for flaw in problem.errors or ()]
    assert pointer in answer.json()["error"]


HEADERS: dict[str, tuple[list[tuple[str, str]], int]] = {
    "another media type": ([("content-type", "text/plain")], 415),
    "two sizes": ([("inference-header-content-length", "2"), ("inference-header-content-length", "3")], 400),
    "a size below 0": ([("inference-header-content-length", "-1")], 400),
    "a size beyond the body": ([("inference-header-content-length", "999")], 400),
    "a size within the JSON": ([("inference-header-content-length", "5")], 400),
}


@pytest.mark.parametrize(("fields", "status"), HEADERS.values(), ids=HEADERS)
async def test_a_header_that_misleads_is_refused(gateway: RunningGateway, fields: list[tuple[str, str]], status: int) -> None:
    body = json.dumps({"inputs": [TEXT]})
    fields = [*keyed(gateway).items(), *fields]
    answer = await gateway.client.post("/v2/models/noop/infer", content=body, headers=fields)
    assert_problem(answer, status, {415: "unsupported_media_type", 400: "malformed_request"}[status])


@pytest.mark.parametrize("media", [None, "application/octet-stream", "application/json; charset=utf-8"])
async def test_json_is_read_under_every_name_that_clients_give_it(gateway: RunningGateway, media: str | None) -> None:
    body = json.dumps({"inputs": [length(1)]}).encode()
    headers = keyed(gateway) | ({} if media is None else {"content-type": media})
    answer = await gateway.client.post("/v2/models/head-of-noop/infer", content=body, headers=headers)
    assert answer.status_code == 200


async def test_a_failure_is_told_by_the_words_of_the_gateway_alone(
    gateway: RunningGateway, client: aio.InferenceServerClient
) -> None:
    for fault in ("raise", "invalid", "nan", "missing", "wide"):
        with pytest.raises(InferenceServerException) as failed:
            await client.infer("faulty", [texts(fault)], headers=keyed(gateway))
        assert failed.value.status() == "502"
        assert "hunter2" not in str(failed.value)
        assert failed.value.message().endswith(".")
    with pytest.raises(InferenceServerException, match="no such model"):
        await client.infer("nowhere", [texts("a")], headers=keyed(gateway))
    with pytest.raises(InferenceServerException, match="Send a key"):
        await client.infer("noop", [texts("a")])


async def test_a_number_costs_its_bytes_and_a_text_its_characters(gateway: RunningGateway) -> None:
    def left(answer: Any) -> int:
        return int(answer.headers["ratelimit"].partition(";r=")[2].partition(";")[0])

    path = "/v2/models/head-of-noop/infer"
    first = await gateway.post(path, {"inputs": [length(*range(10))]}, "weighed")
    assert 460 <= left(first) < 465
    text = {**TEXT, "data": ["\U0001f600" * 100]}
    assert 360 <= left(await gateway.post("/v2/models/noop/infer", {"inputs": [text]}, "weighed")) < 370
    whole = await gateway.post(path, {"inputs": [length(*range(64))]}, "weighed")
    assert 104 <= left(whole) < 120
    refused = await gateway.post(path, {"inputs": [length(*range(64))]}, "weighed")
    assert_problem(refused, 429, "rate_limited")
    assert int(refused.headers["retry-after"]) > 5
    assert "characters" in refused.json()["error"]


@pytest.mark.parametrize(("header", "parameters"), [("100", {}), (None, {"timeout": 100_000}), ("5000", {"timeout": 99_001})])
async def test_time_is_given_by_header_or_parameter_and_the_model_is_told(
    staged: RunningGateway, stage: FakeTriton, header: str | None, parameters: dict[str, int]
) -> None:
    stage.behaviours["words"] = never
    headers = {} if header is None else {"x-request-timeout-ms": header}
    answer = await staged.post("/v2/models/words/infer", {"inputs": [TEXT], "parameters": parameters}, headers=headers)
    assert_problem(answer, 504, "deadline_exceeded")
    (asked,) = stage.asked
    assert 0 < asked.request.parameters["timeout"].int64_param <= 100_000
    assert asked.request.parameters["priority"].uint64_param == 2


async def test_what_goes_to_the_model_is_ours_but_for_the_tensors(staged: RunningGateway, stage: FakeTriton) -> None:
    await staged.post("/v2/models/words/infer", {"inputs": [TEXT], "id": CANARY}, headers={"x-request-id": "r-1"})
    (asked,) = stage.asked
    assert (asked.request.id, asked.request.model_name, asked.request.model_version) == ("r-1", "words", "")
    assert set(asked.request.parameters) == {"timeout", "priority"}
    assert asked.texts == [CANARY.encode()]
    await staged.post("/v2/models/words/versions/1/infer", {"inputs": [TEXT]})
    assert stage.asked[-1].request.model_version == "1"


async def test_a_caller_who_leaves_takes_the_call_along(staged: RunningGateway, stage: FakeTriton) -> None:
    stage.behaviours["words"] = never
    call = asyncio.create_task(staged.post("/v2/models/words/infer", {"inputs": [TEXT]}))
    await stage.arrived.wait()
    call.cancel()
    async with asyncio.timeout(5):
        await stage.cancelled.wait()


async def test_a_full_queue_is_told_with_its_wait(staged: RunningGateway, stage: FakeTriton) -> None:
    stage.behaviours["words"] = aborting(grpc.StatusCode.UNAVAILABLE, "Exceeds maximum queue size")
    answer = await staged.post("/v2/models/words/infer", {"inputs": [TEXT]})
    assert_problem(answer, 503, "overloaded")
    assert answer.headers["retry-after"] == "1"


async def test_an_answer_that_holds_another_number_of_items_is_not_passed_on(staged: RunningGateway, stage: FakeTriton) -> None:
    def bend(response: pb.ModelInferResponse) -> None:
        put(response, "SCORES", "FP32", (2, 3), bytes(24))

    stage.behaviours["words"] = bent(stage, bend)
    assert_problem(await staged.post("/v2/models/words/infer", {"inputs": [TEXT]}), 502, "bad_upstream_response")


async def test_a_large_body_and_a_large_answer_come_through_whole(
    gateway: RunningGateway, client: aio.InferenceServerClient
) -> None:
    sent = np.linspace(0, 1, 40_000).reshape(1, -1)
    tensor = aio.InferInput("IN_FP64", list(sent.shape), "FP64")
    for binary in (True, False):
        tensor.set_data_from_numpy(sent, binary_data=binary)
        wanted = [aio.InferRequestedOutput("OUT_FP64", binary_data=binary)]
        got = (await client.infer("identity", [tensor], outputs=wanted, headers=keyed(gateway))).as_numpy("OUT_FP64")
        assert (got == sent).all()
    many = np.zeros((1, 125_001))
    tensor.set_shape(many.shape)
    tensor.set_data_from_numpy(many)
    with pytest.raises(InferenceServerException, match="characters and bytes"):
        await client.infer("identity", [tensor], headers=keyed(gateway))
