"""The bodies of the Open Inference Protocol, as far as this gateway takes part in it."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema

from app.api.openapi import problems
from app.api.schemas import MAX_TIMEOUT_MS, Problem

_MAX_TENSORS, _MAX_DIMENSIONS, _MAX_SIZE = 64, 16, 2**31 - 1

Name = Annotated[str, Field(min_length=1, max_length=256)]
Datatype = Literal[
    "BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64", "FP16", "BF16", "FP32", "FP64", "BYTES"
]  # fmt: skip
Shape = Annotated[
    list[Annotated[int, Field(ge=1, le=_MAX_SIZE)]],
    Field(min_length=1, max_length=_MAX_DIMENSIONS, description="Where the model batches, its first dimension is the batch."),
]
Data = Annotated[
    Any,  # a list, which is looked at in slices: it may be long
    WithJsonSchema(
        {
            "type": "array",
            "items": {},
            "description": "The elements, row by row, flat or nested: BYTES as strings, BOOL as true and false, else numbers.",
        }
    ),
]
BinarySize = Annotated[
    int | None, Field(ge=0, description="How many bytes of what follows the JSON are this tensor's, instead of `data`.")
]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class InputParameters(_Strict):
    binary_data_size: BinarySize = None


class InferInput(_Strict):
    name: Name
    shape: Shape
    datatype: Datatype
    parameters: InputParameters = InputParameters()
    data: Data = None


class OutputParameters(_Strict):
    binary_data: Annotated[bool | None, Field(description="Whether it comes after the JSON, and not within it.")] = None


class InferOutput(_Strict):
    name: Name
    parameters: OutputParameters = OutputParameters()


class InferParameters(_Strict):
    """A plan's priority is the tenant's, and a request belongs to no sequence: neither is taken here."""

    binary_data_output: Annotated[bool, Field(description="The `binary_data` of every output that does not say it.")] = False
    timeout: Annotated[
        int | None,
        Field(
            ge=1, le=MAX_TIMEOUT_MS * 1000, description="Microseconds, up to the model's maximum; as `X-Request-Timeout-Ms`."
        ),
    ] = None


class InferRequest(_Strict):
    id: Annotated[str, Field(max_length=256, description="Returned as it was sent.")] | None = None
    inputs: Annotated[list[InferInput], Field(min_length=1, max_length=_MAX_TENSORS)]
    outputs: Annotated[
        list[InferOutput], Field(max_length=_MAX_TENSORS, description="All of the model's, where none is named.")
    ] = []
    parameters: InferParameters = InferParameters()


class AnsweredParameters(BaseModel):
    binary_data_size: int


class AnsweredOutput(BaseModel):
    name: str
    datatype: Datatype
    shape: list[int]
    data: Annotated[list[Any] | None, Field(description="The elements in row-major order, flat.")] = None
    parameters: AnsweredParameters | None = None


class InferResponse(BaseModel):
    model_name: Annotated[str, Field(description="The public name.")]
    model_version: str
    id: str | None = None
    outputs: list[AnsweredOutput]


class Live(BaseModel):
    live: Literal[True]


class Ready(BaseModel):
    ready: Literal[True]


class ServerMetadata(BaseModel):
    name: Literal["conch"]
    version: str
    extensions: list[str]


class TensorMetadata(BaseModel):
    name: str
    datatype: Datatype
    shape: Annotated[list[int], Field(description="-1 is any size.")]


class ModelMetadata(BaseModel):
    name: str
    versions: list[str]
    platform: Literal["conch"]
    inputs: list[TensorMetadata]
    outputs: list[TensorMetadata]


class ConfigTensor(BaseModel):
    name: str
    data_type: Annotated[str, Field(description="`TYPE_` and the datatype; BYTES are `TYPE_STRING`.")]
    dims: Annotated[list[int], Field(description="Without the batch; -1 is any size.")]


class ConfigInput(ConfigTensor):
    optional: bool


class TransactionPolicy(BaseModel):
    decoupled: Literal[False]


class ModelConfig(BaseModel):
    name: str
    platform: Literal["conch"]
    max_batch_size: Annotated[int, Field(description="0 where the model does not batch.")]
    input: list[ConfigInput]
    output: list[ConfigTensor]
    model_transaction_policy: TransactionPolicy


class InferenceProblem(Problem):
    """A problem, with the member that this protocol's clients read."""

    error: str


_EXAMPLE = {
    "inputs": [{"name": "TEXT", "shape": [1, 1], "datatype": "BYTES", "data": ["I love it"]}],
    "outputs": [{"name": "SCORES"}],
}
_ANSWER = {
    "model_name": "sentiment",
    "model_version": "1",
    "outputs": [{"name": "SCORES", "datatype": "FP32", "shape": [1, 3], "data": [0.000225, 0.005802, 0.993973]}],
}
_SIZE = "Inference-Header-Content-Length"
_BYTES = {"schema": {"type": "string", "format": "binary"}}


def infer_documented(operation_id: str, summary: str) -> dict[str, Any]:
    """The arguments of the route, whose handler reads and writes bytes by itself."""
    size = {"type": "integer", "minimum": 0}
    return {
        "operation_id": operation_id,
        "summary": summary,
        "responses": {
            200: {
                "model": InferResponse,
                "description": "The outputs. Where one of them is binary, the JSON is followed by its bytes.",
                "headers": {_SIZE: {"description": "How many bytes are JSON, where more follow.", "schema": size}},
                "content": {"application/json": {"example": _ANSWER}, "application/octet-stream": _BYTES},
            },
            **problems(shape=InferenceProblem),
        },
        "openapi_extra": {
            "parameters": [
                {
                    "name": _SIZE,
                    "in": "header",
                    "required": False,
                    "description": "How many bytes of the body are JSON, where the bytes of inputs follow it.",
                    "schema": size,
                }
            ],
            "requestBody": {
                "required": True,
                "content": {
                    "application/json": {
                        "schema": {"$ref": "#/components/schemas/InferRequest"},
                        "examples": {
                            "A text, to a model of a task": {"summary": "A text, to a model of a task", "value": _EXAMPLE}
                        },
                    },
                    "application/octet-stream": _BYTES,
                },
            },
        },
    }
