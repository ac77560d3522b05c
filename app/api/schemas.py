"""The bodies of requests and answers. Requests are validated by them; answers are written by hand to them, and tests hold both
together.
"""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag

from app.errors import Flaw, Malformed
from app.routing.route import MOST_CHARACTERS, MOST_INPUTS

MAX_TIMEOUT_MS = 3_600_000

Model = Annotated[str, Field(min_length=1, max_length=128, description="A model's public name; `GET /v1/models` lists them.")]
Text = Annotated[str, Field(json_schema_extra={"maxLength": MOST_CHARACTERS})]
"""As long as any model may allow. The document says so; the caps of the route itself are what is checked."""
Texts = Annotated[list[Text], Field(json_schema_extra={"minItems": 1, "maxItems": MOST_INPUTS})]
Inputs = Annotated[
    Texts,
    Field(
        description="The texts; 256 of them and 20,000 characters each, where `GET /v1/models` says no other caps of the model."
    ),
]
TopK = Annotated[
    int | None, Field(default=None, ge=1, le=10_000, description="How many labels to return. All up to 10, else 5.")
]
Truncate = Annotated[bool, Field(description="Whether a text that is too long for the model may be cut; if not, it is a 422.")]
TimeoutMs = Annotated[
    int | None, Field(default=None, ge=1, le=MAX_TIMEOUT_MS, description="Milliseconds, up to the model's maximum.")
]
EncodingFormat = Annotated[Literal["float", "base64"], Field(description="`base64`: little-endian 32-bit floats.")]


class _Request(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class ClassifyRequest(_Request):
    model: Model
    inputs: Inputs
    top_k: TopK = None
    truncate: Truncate = True
    timeout_ms: TimeoutMs = None


class EntitiesRequest(_Request):
    model: Model
    inputs: Inputs
    offsets: Annotated[
        Literal["codepoint", "utf16", "byte"],
        Field(description="What `start` and `end` count: code points (Python), UTF-16 (JavaScript, Java) or bytes (Go)."),
    ] = "codepoint"
    include_text: Annotated[bool, Field(description="Whether each entity repeats its piece of the text.")] = False
    truncate: Truncate = True
    timeout_ms: TimeoutMs = None


def _number(value: object) -> str:
    """Raises `Malformed` where there are token ids, which OpenAI's own models take."""
    if not isinstance(value, list):
        return "one"
    if _is_of_tokens(value) or (value and _is_of_tokens(value[0])):
        raise Malformed(
            "this gateway takes texts and no tokens, since each model has its own: with LangChain, say"
            " check_embedding_ctx_length=False",
            flaws=(Flaw("/input", "tokens", "this must be a text or a list of texts"),),
        )
    return "several"


def _is_of_tokens(value: object) -> bool:
    return isinstance(value, list) and bool(value) and type(value[0]) is int


class EmbeddingsRequest(_Request):
    model: Model
    input: Annotated[
        Annotated[Text, Tag("one")] | Annotated[Texts, Tag("several")],
        Discriminator(_number),  # or a fault in a list would be told of twice, since it is no string either
        Field(description="A text, or a list of texts."),
    ]
    encoding_format: EncodingFormat = "float"
    dimensions: Annotated[
        int | None, Field(ge=1, description="The vector's length: the model's own, or one that its vectors may be cut to.")
    ] = None
    user: Annotated[str | None, Field(max_length=256, description="Accepted for compatibility, and ignored.")] = None
    truncate: Truncate = True
    timeout_ms: TimeoutMs = None


class AnalyzeRequest(_Request):
    model: Model = "analyze"
    inputs: Inputs
    features: Annotated[
        list[str],
        Field(max_length=32, description="Which heads to run; all where it is empty. What is not asked for is not computed."),
    ] = []
    top_k: TopK = None
    encoding_format: EncodingFormat = "float"
    truncate: Truncate = True
    timeout_ms: TimeoutMs = None


class Label(BaseModel):
    label: str
    score: float


class Usage(BaseModel):
    inputs: int
    characters: int
    tokens: int | None = Field(description="Null where the model does not count tokens.")


class Remarks(BaseModel):
    tokens: int | None
    truncated: bool | None = Field(description="Whether the model read only the beginning of the text.")


class Classified(Remarks):
    labels: list[Label] = Field(description="The best first.")


class ClassifyResponse(BaseModel):
    model: str
    version: str = Field(description="The ensemble that answered, and its version.")
    results: list[Classified]
    usage: Usage


class Entity(BaseModel):
    label: str
    start: int
    end: int
    score: float
    text: str | None = Field(None, description="Only with `include_text`.")


class Found(Remarks):
    entities: list[Entity] = Field(description="In the order of the text.")


class EntitiesResponse(BaseModel):
    model: str
    version: str
    results: list[Found]
    usage: Usage


class IndexedEmbedding(BaseModel):
    object: Literal["embedding"]
    index: int
    embedding: list[float] | str = Field(description="A list of numbers, or base64 where that was asked for.")


class EmbeddingsUsage(BaseModel):
    prompt_tokens: int
    total_tokens: int


class EmbeddingsResponse(BaseModel):
    object: Literal["list"]
    data: list[IndexedEmbedding]
    model: str
    usage: EmbeddingsUsage


class Analyzed(Remarks):
    heads: dict[str, list[Label]] = Field(description="The labels of each head, the best first.")
    embedding: list[float] | str | None = Field(None, description="A list of numbers, or base64 where that was asked for.")


class AnalyzeResponse(BaseModel):
    model: str
    version: str
    embedding_model: str | None = Field(
        description="Which model made the vectors; they compare only with vectors of the same one."
    )
    results: list[Analyzed]
    usage: Usage


class ModelLimits(BaseModel):
    inputs: int
    characters_per_input: int
    characters: int
    allow_empty: bool
    timeout_ms_default: int
    timeout_ms_max: int


class ModelCard(BaseModel):
    id: str
    object: Literal["model"]
    created: int = Field(description="Always 0: Conch does not know; OpenAI's clients want the member.")
    owned_by: Literal["conch"]
    task: str
    description: str
    available: bool
    labels: dict[str, list[str]] | None = Field(None, description="Of each head; only when one model is asked for.")
    dimensions: int | None = Field(None, description="Of the model's vectors.")
    shorter_dimensions: list[int] | None = Field(
        None, description="What `dimensions` of `/v1/embeddings` may be besides; only of models that make vectors."
    )
    any_shorter_dimensions: bool | None = Field(None, description="Whether it may be any smaller number.")
    limits: ModelLimits


class ModelList(BaseModel):
    object: Literal["list"]
    data: list[ModelCard]


class FlawModel(BaseModel):
    pointer: str = Field(description="A JSON pointer (RFC 6901) into the body.")
    code: str
    detail: str


class Problem(BaseModel):
    """Every error, as RFC 9457 has it."""

    type: str = Field(description="A stable path for each `code`.")
    title: str
    status: int
    detail: str
    code: str
    request_id: str
    errors: list[FlawModel] | None = Field(None, description="Which items of the request are at fault.")


class OpenAIError(BaseModel):
    message: str
    type: str
    param: str | None
    code: str


class OpenAIProblem(Problem):
    """A problem with the member that OpenAI's clients read."""

    error: OpenAIError
