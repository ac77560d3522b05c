"""Requests that work when they are pasted, against the models of this repository, and what those answer. Tests run each."""

from typing import Any

MODELS = {
    "ClassifyRequest": ("sentiment", "topics", "language"),
    "EntitiesRequest": ("pii",),
    "EmbeddingsRequest": ("minilm-l6-v2", "bge-small-en-v1.5"),
    "AnalyzeRequest": ("analyze",),
    "RerankRequest": ("ms-marco-minilm",),
}
"""The catalogue of this repository, as examples of an open string. The live one would tell a stranger of models that not even
every tenant may see, since the document is public.
"""
REQUESTS: dict[str, dict[str, dict[str, Any]]] = {
    "classify": {
        "Sentiment": {"model": "sentiment", "inputs": ["I love it", "It broke after a day."]},
        "The three best topics": {"model": "topics", "inputs": ["The new SUV handles snow well."], "top_k": 3},
        "Language": {"model": "language", "inputs": ["Где находится библиотека?", "¿Dónde está la biblioteca?"], "top_k": 1},
    },
    "entities": {
        "Personal data, with its text": {
            "model": "pii",
            "inputs": ["My name is Jane Doe and I live in Springfield."],
            "include_text": True,
        },
        "Places in UTF-16, for JavaScript and Java": {
            "model": "pii",
            "inputs": ["👋 I am Jane Doe, jane@example.com"],
            "offsets": "utf16",
        },
    },
    "embeddings": {
        "Several texts": {"model": "minilm-l6-v2", "input": ["A cat sat on the mat.", "A kitten rested on the rug."]},
        "One text, packed": {"model": "bge-small-en-v1.5", "input": "A cat sat on the mat.", "encoding_format": "base64"},
    },
    "analyze": {
        "Sentiment and topics": {
            "model": "analyze",
            "inputs": ["The new SUV handles snow well."],
            "features": ["sentiment", "topics"],
            "top_k": 2,
        },
        "Everything": {"model": "analyze", "inputs": ["The new SUV handles snow well."]},
    },
    "rerank": {
        "The best two": {
            "model": "ms-marco-minilm",
            "query": "How many people live in Berlin?",
            "documents": [
                "Berlin is well known for its museums.",
                "Berlin had a population of 3,520,031 registered inhabitants in an area of 891.82 square kilometers.",
                "The central bank raised interest rates by a quarter point.",
            ],
            "top_n": 2,
        },
    },
}
FLAW = {"pointer": "/inputs/3", "code": "empty", "detail": "This model takes no empty text."}
DETAILS = {
    "malformed_request": "The body is not JSON as this gateway takes it: its syntax is broken, at line 1 column 9.",
    "unauthenticated": "Send a key, as Authorization: Bearer or as X-API-Key.",
    "forbidden": "This credential has not the scope infer.",
    "unknown_model": "There is no such model among those that this tenant may call; GET /v1/models lists them.",
    "not_found": "There is nothing at this path; GET /openapi.json lists what there is.",
    "request_timeout": "The body did not arrive in time.",
    "too_large": "A body may have at most 4194304 bytes.",
    "uri_too_long": "A request target may have at most 8192 bytes.",
    "unsupported_media_type": "The body must be application/json, in UTF-8.",
    "invalid_input": "A text is outside this model's rules.",
    "headers_too_large": "The head of a request may have at most 16384 bytes.",
    "rate_limited": "The tenant's requests per second are used up.",
    "quota_exhausted": "The tenant's characters of this day are used up.",
    "too_many_in_flight": "The tenant has as many requests in flight as it may.",
    "internal_error": "Conch failed; the log has more under this request_id.",
    "upstream_error": "The model failed on this request.",
    "bad_upstream_response": "The answer marks a place that the text does not have.",
    "overloaded": "This model has no capacity left.",
    "unavailable": "No model server can be reached.",
    "model_unavailable": "This model is not ready at present.",
    "deadline_exceeded": "The time given for the request has passed.",
}
"""A sentence that each code may come with."""
