"""Offsets in the caller's unit, whatever the text holds."""

from array import array

import grpc.aio
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tritonclient.grpc import service_pb2 as pb

from app.api.schemas import EntitiesResponse
from tests.fakes.triton import Behaviour, FakeTriton, put
from tests.gateway.process import RunningGateway

Span = tuple[int, int, int]
TEXT = st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from("a\u00e9\u4e2d\U0001f600"), min_size=1, max_size=40)


@st.composite
def marked(draw: st.DrawFn) -> tuple[str, list[Span]]:
    text = draw(TEXT)
    start = st.integers(0, len(text) - 1)
    span = start.flatmap(lambda at: st.tuples(st.just(at), st.integers(at + 1, len(text)), st.integers(0, 1)))
    return text, draw(st.lists(span, max_size=4))


def marking(stage: FakeTriton, spans: list[list[Span]]) -> Behaviour:
    """Padded with -1 to the longest, as Triton's tensors are."""
    longest = max(map(len, spans))

    async def behave(request: pb.ModelInferRequest, context: grpc.aio.ServicerContext) -> pb.ModelInferResponse:
        response = stage.well_formed(request)
        flat = [number for of in spans for span in [*of, *[(-1, -1, -1)] * (longest - len(of))] for number in span]
        scores = [score for of in spans for score in [0.75] * len(of) + [-1.0] * (longest - len(of))]
        put(response, "SPANS", "INT32", (len(spans), longest, 3), array("i", flat).tobytes())
        put(response, "SPAN_SCORES", "FP32", (len(spans), longest), array("f", scores).tobytes())
        return response

    return behave


def measured(text: str, position: int, unit: str) -> int:
    if unit == "codepoint":
        return position
    return len(text[:position].encode("utf-8")) if unit == "byte" else len(text[:position].encode("utf-16-le")) // 2


async def find(gateway: RunningGateway, texts: list[str], **more: object) -> EntitiesResponse:
    answer = await gateway.post("/v1/entities", {"model": "spans", "inputs": texts, **more})
    assert answer.status_code == 200, answer.text
    return EntitiesResponse.model_validate(answer.json())


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(unit=st.sampled_from(["codepoint", "utf16", "byte"]), given=st.lists(marked(), min_size=1, max_size=3))
async def test_offsets_count_what_was_asked_for(
    staged: RunningGateway, stage: FakeTriton, unit: str, given: list[tuple[str, list[Span]]]
) -> None:
    texts = [text for text, _ in given]
    stage.behaviours["spans"] = marking(stage, [spans for _, spans in given])
    answer = await find(staged, texts, offsets=unit, include_text=True)
    for (text, spans), result in zip(given, answer.results, strict=True):
        assert [(entity.start, entity.end, entity.text) for entity in result.entities] == [
            (measured(text, start, unit), measured(text, end, unit), text[start:end]) for start, end, _ in spans
        ]
        assert [entity.label for entity in result.entities] == [("name", "place")[label] for *_, label in spans]


async def test_the_text_of_an_entity_is_told_only_when_it_is_asked_for(staged: RunningGateway, stage: FakeTriton) -> None:
    stage.behaviours["spans"] = marking(stage, [[(0, 4, 0)]])
    plain = await staged.post("/v1/entities", {"model": "spans", "inputs": ["Jane here"]})
    assert plain.json()["results"][0]["entities"] == [{"label": "name", "start": 0, "end": 4, "score": 0.75}]
    with_text = await staged.post("/v1/entities", {"model": "spans", "inputs": ["Jane here"], "include_text": True})
    assert with_text.json()["results"][0]["entities"][0]["text"] == "Jane"


@pytest.mark.parametrize("spans", [[[], []], [[(0, 1, 1)], []], [[], [(0, 1, 1), (1, 2, 0)]]])
async def test_each_text_has_as_many_entities_as_were_found_in_it(
    staged: RunningGateway, stage: FakeTriton, spans: list[list[Span]]
) -> None:
    stage.behaviours["spans"] = marking(stage, spans)
    answer = await find(staged, ["ab", "cd"])
    assert [len(result.entities) for result in answer.results] == [len(of) for of in spans]
