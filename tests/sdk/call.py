"""Calls a gateway through the generated Python client, and prints what came back as JSON."""

import json
import sys
from typing import Any

from conch import AuthenticatedClient
from conch.api.models import list_models
from conch.api.tasks import classify, embeddings, entities
from conch.models import (
    ClassifyRequest,
    ClassifyResponse,
    EmbeddingsRequest,
    EmbeddingsResponse,
    EntitiesRequest,
    EntitiesRequestOffsets,
    EntitiesResponse,
    ModelList,
    Problem,
)
from conch.types import Response

url, key, tight_key = sys.argv[1:]
client = AuthenticatedClient(base_url=url, token=key)


def ask(*texts: str, model: str = "words", by: AuthenticatedClient = client) -> Response[ClassifyResponse | Problem]:
    return classify.sync_detailed(client=by, body=ClassifyRequest(model=model, inputs=list(texts), top_k=2))


def told(answer: Response[ClassifyResponse | Problem]) -> dict[str, Any]:
    problem = answer.parsed
    assert isinstance(problem, Problem)
    wait = answer.headers.get("retry-after")
    return {
        "status": answer.status_code.value,
        "code": problem.code,
        "pointers": [flaw.pointer for flaw in problem.errors or []],
        "waits": wait is not None and int(wait) >= 1,
        "named": answer.headers["x-request-id"] == problem.request_id,
    }


def limited() -> dict[str, Any]:
    tight = AuthenticatedClient(base_url=url, token=tight_key)
    while (answer := ask("a", by=tight)).status_code == 200:
        pass
    return told(answer)


sorted_texts, models = ask("a", "b").parsed, list_models.sync(client=client)
vectors = embeddings.sync(client=client, body=EmbeddingsRequest(model="vectors", input_="a"))
body = EntitiesRequest(model="spans", inputs=["a"], offsets=EntitiesRequestOffsets.UTF16)
found = entities.sync(client=client, body=body)
assert isinstance(sorted_texts, ClassifyResponse)
assert isinstance(models, ModelList)
assert isinstance(vectors, EmbeddingsResponse)
assert isinstance(found, EntitiesResponse)
vector = vectors.data[0].embedding
outcome = {
    "labels": [label.label for label in sorted_texts.results[1].labels],
    "models": sorted(card.id for card in models.data),
    "dimensions": len(vector),
    "entities": len(found.results[0].entities),
    "invalid": told(ask()),
    "unauthenticated": told(ask("a", by=AuthenticatedClient(base_url=url, token="nobody's"))),
    "limited": limited(),
    "unavailable": told(ask("a", model="brief")),
}
print(json.dumps(outcome))  # noqa: T201
