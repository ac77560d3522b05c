"""The lines of a bulk post and of its answer, the options that its query may hold, and the document of all that."""

from typing import Annotated, Any, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, Field, create_model

from app.api.openapi import problems
from app.api.schemas import (
    Analyzed,
    AnalyzeRequest,
    Classified,
    ClassifyRequest,
    EmbeddingsRequest,
    EntitiesRequest,
    FlawModel,
    Found,
    Remarks,
)

NDJSON = "application/x-ndjson"
MAX_ID, MAX_NUMBER = 256, 2**63 - 1

_EXAMPLE = '{"id": "r1", "text": "I love it"}\n{"id": "r2", "text": "It broke after a day."}\n'

Id = Annotated[
    Annotated[str, Field(max_length=MAX_ID)] | Annotated[int, Field(ge=-MAX_NUMBER, le=MAX_NUMBER)] | None,
    Field(description="The caller's own name for the line; it comes back with the answer."),
]
Result = TypeVar("Result")


class BulkLine(BaseModel):
    """One line of the body."""

    model_config = ConfigDict(extra="forbid", strict=True)

    id: Id = None
    text: str


class BulkError(BaseModel):
    """As in problem details, of one line."""

    status: int
    code: str
    detail: str
    retry_after: int | None = Field(None, description="Seconds after which the line may be sent again.")
    errors: list[FlawModel] | None = Field(None, description="What is wrong with the line.")


class _Answer(BaseModel, Generic[Result]):
    index: int = Field(description="Which line of the body this answers, from 0.")
    id: Id = None
    version: str | None = Field(None, description="The ensemble that answered, and its version.")
    result: Result | None = Field(None, description="Either this or `error` is there.")
    error: BulkError | None = None


class Embedded(Remarks):
    embedding: list[float] | str = Field(description="A list of numbers, or base64 where that was asked for.")


class BulkClassified(_Answer[Classified]):
    """One line of the answer."""


class BulkFound(_Answer[Found]):
    """One line of the answer."""


class BulkEmbedded(_Answer[Embedded]):
    """One line of the answer."""


class BulkAnalyzed(_Answer[Analyzed]):
    """One line of the answer."""


ANSWERS: dict[str, type[BaseModel]] = {
    "classify": BulkClassified,
    "entities": BulkFound,
    "embeddings": BulkEmbedded,
    "analyze": BulkAnalyzed,
}


def _options(request: type[BaseModel]) -> type[BaseModel]:
    """All that a request of the task may hold but its texts; of a query, so that strings are read as what they stand for."""
    fields: dict[str, Any] = {
        name: (field.annotation, field)
        for name, field in request.model_fields.items()
        if name not in {"inputs", "input", "user"}
    }
    name = request.__name__.replace("Request", "Options")
    return create_model(name, __config__=ConfigDict(extra="forbid"), **fields)


OPTIONS: dict[str, type[BaseModel]] = {
    "classify": _options(ClassifyRequest),
    "entities": _options(EntitiesRequest),
    "embeddings": _options(EmbeddingsRequest),
    "analyze": _options(AnalyzeRequest),
}

LINES: tuple[type[BaseModel], ...] = (BulkLine, *ANSWERS.values())
"""For the document."""

_ABOUT = (
    "A line in, a line out, in order, as soon as it is ready; each has a `result` or an `error` of its own. The answer is whole"
    " when it has as many lines as the body, which the header `Conch-Lines` repeats. At the tenant's limits the post waits,"
    " within its time."
)
_HEADERS = {"Conch-Lines": {"description": "How many lines the whole answer has.", "schema": {"type": "integer"}}}


def bulk_documented(task: str) -> dict[str, Any]:
    """The arguments of the task's route."""
    schema = OPTIONS[task].model_json_schema()
    required = schema.get("required", ())
    return {
        "operation_id": f"bulk_{task}",
        "summary": f"Many texts to {task}",
        "description": _ABOUT,
        "responses": {
            200: {
                "description": "The answers, in the order of the lines.",
                "headers": _HEADERS,
                "content": {NDJSON: _ndjson(ANSWERS[task])},
            },
            **problems(),
        },
        "openapi_extra": {
            "parameters": [_parameter(name, of, name in required) for name, of in schema["properties"].items()],
            "requestBody": {"required": True, "content": {NDJSON: {**_ndjson(BulkLine), "example": _EXAMPLE}}},
        },
    }


def _parameter(name: str, schema: dict[str, Any], is_required: bool) -> dict[str, Any]:
    described = {"description": schema["description"]} if "description" in schema else {}
    shape = {key: value for key, value in schema.items() if key not in ("title", "description")}
    return {"name": name, "in": "query", "required": is_required, **described, "schema": shape}


def _ndjson(line: type[BaseModel]) -> dict[str, Any]:
    """To generators a string, since few of them know what a line is."""
    reference = {"$ref": f"#/components/schemas/{line.__name__}"}
    return {"schema": {"type": "string", "description": f"{line.__name__} as JSON, one in each line.", "x-item": reference}}
