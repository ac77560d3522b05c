"""Which models a tenant sees, and whose YAML alone fits a foreign one."""

from tests.gateway.problems import CANARY, assert_problem
from tests.gateway.process import RunningGateway


async def test_a_foreign_ensemble_is_served_by_yaml_alone(gateway: RunningGateway) -> None:
    answer = (await gateway.classify("Is it so?", "It is.", model="questions")).json()
    assert [result["labels"][0] for result in answer["results"]] == [
        {"label": "question", "score": 0.75},
        {"label": "statement", "score": 0.75},
    ]
    assert [(result["tokens"], result["truncated"]) for result in answer["results"]] == [(3, None), (2, None)]
    assert answer["version"] == "foreign:1"


async def test_a_foreign_ensemble_s_smaller_batch_is_respected(gateway: RunningGateway) -> None:
    texts = [f"{'word ' * (at % 9)}end{'?' * (at % 2)}" for at in range(50)]
    answer = (await gateway.classify(*texts, model="questions")).json()
    assert [result["labels"][0]["label"] == "question" for result in answer["results"]] == [at % 2 == 1 for at in range(50)]
    assert [result["tokens"] for result in answer["results"]] == [at % 9 + 1 for at in range(50)]


async def test_a_tenant_is_told_of_its_own_models_only(gateway: RunningGateway) -> None:
    everything = {card["id"] for card in (await gateway.get("/v1/models")).json()["data"]}
    seen = {f"seen-{task}" for task in ("classify", "entities", "embeddings", "analyze", "rerank", "infer")}
    assert everything == {"noop", "echo", "sleepy", "faulty", "questions", "identity", "head-of-noop", *seen}
    assert [card["id"] for card in (await gateway.get("/v1/models", tenant="some")).json()["data"]] == ["noop"]


async def test_a_model_of_others_is_no_different_from_one_that_is_not(gateway: RunningGateway) -> None:
    problems = []
    for model in ("echo", CANARY):
        body = {"model": model, "input": CANARY}
        posted = await gateway.post("/v1/embeddings", body, tenant="some")
        asked = await gateway.get(f"/v1/models/{model}", tenant="some")
        problems.append(
            [assert_problem(answer, 404, "unknown_model").model_dump(exclude={"request_id"}) for answer in (posted, asked)]
        )
    assert problems[0] == problems[1]


async def test_a_wrong_task_for_a_model_of_others_tells_nothing_either(gateway: RunningGateway) -> None:
    answer = await gateway.classify(CANARY, model="echo", tenant="some")
    assert_problem(answer, 404, "unknown_model")


async def test_a_model_s_card_has_its_labels_dimensions_and_limits(gateway: RunningGateway) -> None:
    noop = (await gateway.get("/v1/models/noop")).json()
    assert noop["labels"] == {"scores": ["red", "green", "blue"]}
    assert (noop["task"], noop["available"], noop["limits"]["inputs"]) == ("classify", True, 10_000)
    echo = (await gateway.get("/v1/models/echo")).json()
    assert (echo["dimensions"], echo["limits"]["allow_empty"]) == (32, True)
