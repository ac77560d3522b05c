"""What rerank clients send and read: Cohere's (v1 and v2), Jina's, and those that speak like either."""

from collections.abc import Callable
from heapq import nlargest
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag

from app.api import answers
from app.api.schemas import Model, Remarks, Text, TimeoutMs, Truncate, Usage
from app.calls.texts import Answer
from app.routing.route import MOST_INPUTS
from app.telemetry.exchange import Exchange

_IGNORED = "Accepted for compatibility, and ignored."


class RerankDocument(BaseModel):
    """A text with whatever else the caller keeps beside it; only the text is read."""

    # 1e999 was read as infinity, for which JSON has no word when it comes back.
    model_config = ConfigDict(extra="allow", strict=True, ser_json_inf_nan="null")

    text: Text


def _kind(value: object) -> str:
    return "object" if isinstance(value, dict) else "plain"


Document = Annotated[
    Annotated[Text, Tag("plain")] | Annotated[RerankDocument, Tag("object")],
    Discriminator(_kind),  # or what is neither would be told of twice
]


class RerankRequest(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    model: Model
    query: Annotated[Text, Field(description="What the documents are held against.")]
    documents: Annotated[
        list[Document],
        Field(
            description="The texts, as they are or in objects. The model's caps are listed with it.",
            json_schema_extra={"minItems": 1, "maxItems": MOST_INPUTS},
        ),
    ]
    top_n: Annotated[int | None, Field(ge=1, description="How many of the best to return; all where it is not given.")] = None
    return_documents: Annotated[bool, Field(description="Whether each result repeats its document, as an object.")] = False
    truncate: Truncate = True
    timeout_ms: TimeoutMs = None
    rank_fields: Annotated[list[Literal["text"]] | None, Field(max_length=1, description="Only `text` is read.")] = None
    max_chunks_per_doc: Annotated[int | None, Field(ge=1, description=_IGNORED)] = None
    max_tokens_per_doc: Annotated[int | None, Field(ge=1, description=_IGNORED)] = None
    priority: Annotated[int | None, Field(description=f"{_IGNORED} The tenant's plan has one.")] = None

    def texts(self) -> list[str]:
        return [document if isinstance(document, str) else document.text for document in self.documents]


class Ranked(Remarks):
    index: int = Field(description="Which of the documents this is, from 0.")
    relevance_score: float = Field(
        description="As the model gives it: a logit, of any size, for cross-encoders. It orders documents for one query."
    )
    document: RerankDocument | None = Field(None, description="Only with `return_documents`.")


class RerankUsage(Usage):
    prompt_tokens: int | None
    total_tokens: int | None


class RerankTokens(BaseModel):
    input_tokens: int | None
    output_tokens: int


class RerankMeta(BaseModel):
    """The usage again, where Cohere's clients look for it."""

    tokens: RerankTokens


class RerankResponse(BaseModel):
    id: str = Field(description="The request's id, as in `X-Request-Id`.")
    model: str
    version: str
    results: list[Ranked] = Field(description="The most relevant first; of equal ones, the earlier.")
    usage: RerankUsage
    meta: RerankMeta


Items = Callable[[int, int], list[answers.Json]]


def ranked(answer: Answer, body: RerankRequest, exchange: Exchange) -> tuple[answers.Json, int, Items, answers.Json]:
    """What comes before the results, how many they are, those from one place up to another, and what comes after them."""
    scores: list[float] = [row[0] for row in answer.rows["score"]]
    best = nlargest(body.top_n or len(scores), range(len(scores)), scores.__getitem__)

    def result(at: int) -> answers.Json:
        found = {"index": at, "relevance_score": round(scores[at], 6), **answers.remark(answer, at)}
        return {**found, "document": _shown(body.documents[at])} if body.return_documents else found

    usage = answers.usage(exchange, answer)
    head = {"id": exchange.request_id, "model": answer.route.name, "version": answers.version(answer)}
    tail = {
        "usage": {**usage, "prompt_tokens": usage["tokens"], "total_tokens": usage["tokens"]},
        "meta": {"tokens": {"input_tokens": usage["tokens"], "output_tokens": 0}},
    }
    return head, len(best), lambda start, end: list(map(result, best[start:end])), tail


def _shown(document: str | RerankDocument) -> dict[str, Any]:
    return {"text": document} if isinstance(document, str) else document.model_dump(mode="json")
