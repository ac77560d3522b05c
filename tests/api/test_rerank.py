"""Documents in the order of their relevance, whoever's client asks."""

from array import array
from typing import Any

import grpc.aio
import pytest
from tritonclient.grpc import service_pb2 as pb

from app.api.rerank import RerankResponse
from app.triton.tensor import unpack_texts
from tests.fakes.triton import Behaviour, FakeTriton, put
from tests.gateway.problems import CANARY, assert_problem
from tests.gateway.process import RunningGateway

QUERY = f"{CANARY} \u0000 🙂 e\u0301"


def scoring(stage: FakeTriton) -> Behaviour:
    """A document is as relevant as the number that it begins with."""

    async def behave(request: pb.ModelInferRequest, context: grpc.aio.ServicerContext) -> pb.ModelInferResponse:
        texts = unpack_texts(request.raw_input_contents[0], request.inputs[0].shape[0])
        scores = array("f", [float(text.split()[0]) for text in texts])
        response = stage.well_formed(request)
        name = next(output.name for output in response.outputs if output.datatype == "FP32")
        put(response, name, "FP32", (len(texts), 1), scores.tobytes())
        return response

    return behave


async def rerank(gateway: RunningGateway, documents: list[Any], path: str = "/v1/rerank", **more: Any) -> RerankResponse:
    body = {"model": "pairs", "query": QUERY, "documents": documents, **more}
    answer = await gateway.post(path, body)
    assert answer.status_code == 200, answer.text
    return RerankResponse.model_validate(answer.json())


def order(answer: RerankResponse) -> list[int]:
    return [result.index for result in answer.results]


@pytest.mark.parametrize("path", ["/v1/rerank", "/v2/rerank"])
async def test_the_most_relevant_come_first_and_of_equal_ones_the_earlier(
    staged: RunningGateway, stage: FakeTriton, path: str
) -> None:
    stage.behaviours["pairs"] = scoring(stage)
    answer = await rerank(staged, ["1", "-2.5", "7.25", "1"], path)
    assert order(answer) == [2, 0, 3, 1]
    assert [result.relevance_score for result in answer.results] == [7.25, 1, 1, -2.5]


@pytest.mark.parametrize(("top_n", "count"), [(None, 3), (1, 1), (2, 2), (99, 3)])
async def test_as_many_are_returned_as_were_asked_for(
    staged: RunningGateway, stage: FakeTriton, top_n: int | None, count: int
) -> None:
    stage.behaviours["pairs"] = scoring(stage)
    assert order(await rerank(staged, ["1", "2", "3"], top_n=top_n)) == [2, 1, 0][:count]


async def test_documents_come_back_as_objects_with_all_that_was_in_them_and_only_when_they_are_asked_for(
    staged: RunningGateway, stage: FakeTriton
) -> None:
    stage.behaviours["pairs"] = scoring(stage)
    rich = {"text": "2 rich", "id": 7, "tags": ["a", {"b": None}]}
    bodies = [
        {"model": "pairs", "query": QUERY, "documents": ["1 plain", rich], "return_documents": yes} for yes in (True, False)
    ]
    shown, hidden = [(await staged.post("/v1/rerank", body)).json()["results"] for body in bodies]
    assert [result["document"] for result in shown] == [rich, {"text": "1 plain"}]
    assert all("document" not in result for result in hidden)


async def test_a_number_beyond_all_numbers_comes_back_as_what_json_can_say(staged: RunningGateway, stage: FakeTriton) -> None:
    stage.behaviours["pairs"] = scoring(stage)
    body = b'{"model":"pairs","query":"q","documents":[{"text":"1","prices":[1e999,-1e999,5e300]}],"return_documents":true}'
    headers = {**staged.tenants.authorization("open"), "content-type": "application/json"}
    answer = await staged.client.post("/v1/rerank", content=body, headers=headers)
    assert b"Infinity" not in answer.content
    assert answer.json()["results"][0]["document"] == {"text": "1", "prices": [None, None, 5e300]}


async def test_the_query_travels_beside_each_document_byte_for_byte_and_long_lists_are_split_and_merged(
    staged: RunningGateway, stage: FakeTriton
) -> None:
    stage.behaviours["pairs"] = scoring(stage)
    documents = [f"{(at * 7) % 11} {'x' * at}" for at in range(11)]
    answer = await rerank(staged, documents)
    assert order(answer) == sorted(range(11), key=lambda at: -float(documents[at].split()[0]))
    assert [asked.request.inputs[0].shape[0] for asked in stage.asked] == [4, 4, 3]
    for asked in stage.asked:
        assert [(tensor.name, list(tensor.shape)) for tensor in asked.request.inputs] == [
            ("TEXT", [len(asked.texts), 1]),
            ("QUERY", [len(asked.texts), 1]),
        ]
        assert set(unpack_texts(asked.request.raw_input_contents[1], len(asked.texts))) == {QUERY.encode()}
    assert sorted(text for asked in stage.asked for text in asked.texts) == sorted(text.encode() for text in documents)


async def test_a_query_costs_its_characters_for_each_document(staged: RunningGateway, stage: FakeTriton) -> None:
    stage.behaviours["pairs"] = scoring(stage)
    answer = await rerank(staged, ["1", "22", "333"])
    assert answer.usage.inputs == 3
    assert answer.usage.characters == 3 * len(QUERY) + 6
    assert answer.meta.tokens.input_tokens == answer.usage.total_tokens == answer.usage.tokens


async def test_what_other_services_clients_send_besides_is_taken(staged: RunningGateway, stage: FakeTriton) -> None:
    stage.behaviours["pairs"] = scoring(stage)
    cohere: dict[str, Any] = {"rank_fields": ["text"], "max_chunks_per_doc": 10, "max_tokens_per_doc": 4096, "priority": 1}
    assert order(await rerank(staged, ["1", {"text": "2"}], **cohere)) == [1, 0]
    nothing: dict[str, Any] = dict.fromkeys(("top_n", "rank_fields", "max_chunks_per_doc", "max_tokens_per_doc", "priority"))
    assert order(await rerank(staged, ["1", "2"], **nothing)) == [1, 0]


async def test_an_ensemble_with_tensors_of_any_names_serves(staged: RunningGateway, stage: FakeTriton) -> None:
    stage.behaviours["strange-pairs"] = scoring(stage)
    assert order(await rerank(staged, ["1", "2"], model="strange-pairs")) == [1, 0]
    assert [tensor.name for tensor in stage.asked[0].request.inputs] == ["passage", "question"]


REFUSED: list[tuple[dict[str, Any], tuple[str, ...]]] = [
    ({"documents": []}, ("/documents",)),
    ({"documents": ["a", ""]}, ("/documents/1",)),
    ({"documents": [{"text": ""}]}, ("/documents/0",)),
    ({"documents": [{"title": CANARY}]}, ("/documents/0/text",)),
    ({"documents": [CANARY, 3, None]}, ("/documents/1", "/documents/2")),
    ({"documents": ["x" * 201]}, ("/documents/0",)),
    ({"query": ""}, ("/query",)),
    ({"query": "x" * 201}, ("/query",)),
    ({"query": [CANARY]}, ("/query",)),
    ({"query": CANARY * 10, "documents": ["a"] * 600}, ("/documents",)),
    ({"top_n": 0}, ("/top_n",)),
    ({"rank_fields": [CANARY]}, ("/rank_fields/0",)),
    ({"relevant_spans": CANARY}, ("",)),
    ({"model": "words"}, ("/model",)),
]


@pytest.mark.parametrize(("wrong", "pointers"), REFUSED, ids=lambda value: str(value)[:40])
async def test_what_is_wrong_is_pointed_to(
    staged: RunningGateway, stage: FakeTriton, wrong: dict[str, Any], pointers: tuple[str, ...]
) -> None:
    answer = await staged.post("/v1/rerank", {"model": "pairs", "query": QUERY, "documents": [CANARY], **wrong})
    assert_problem(answer, 422, "invalid_input", *pointers)
    assert not stage.asked


@pytest.mark.parametrize(
    ("documents", "said"), [([], "Documents must hold at least one text."), (["a"] * 10_001, "Documents may")]
)
async def test_what_is_wrong_is_said_in_the_words_of_the_request(
    staged: RunningGateway, stage: FakeTriton, documents: list[str], said: str
) -> None:
    answer = await staged.post("/v1/rerank", {"model": "pairs", "query": "q", "documents": documents})
    assert assert_problem(answer, 422, "invalid_input", "/documents").detail.startswith(said)


async def test_a_document_that_would_be_cut_is_refused_where_nothing_may_be(staged: RunningGateway, stage: FakeTriton) -> None:
    async def cutting(request: pb.ModelInferRequest, context: grpc.aio.ServicerContext) -> pb.ModelInferResponse:
        response = stage.well_formed(request)
        put(response, "TRUNCATED", "BOOL", (2, 1), b"\0\1")
        return response

    stage.behaviours["pairs"] = cutting
    assert [result.truncated for result in (await rerank(staged, ["a", "b"])).results] == [False, True]
    body = {"model": "pairs", "query": QUERY, "documents": ["a", "b"], "truncate": False}
    assert_problem(await staged.post("/v1/rerank", body), 422, "invalid_input", "/documents/1")


async def test_a_score_that_is_no_number_is_not_believed(staged: RunningGateway, stage: FakeTriton) -> None:
    stage.behaviours["pairs"] = scoring(stage)
    body = {"model": "pairs", "query": QUERY, "documents": ["1", "nan"]}
    assert_problem(await staged.post("/v1/rerank", body), 502, "bad_upstream_response")
