"""What the models of this repository answer to the first example of each task; a test asks them. Vectors are cut to four
numbers.
"""

from typing import Any

_LIMITS = {
    "inputs": 256,
    "characters_per_input": 20000,
    "characters": 200000,
    "allow_empty": False,
    "timeout_ms_default": 30000,
    "timeout_ms_max": 120000,
}


def _card(name: str, task: str, description: str, dimensions: int | None = None) -> dict[str, Any]:
    shorter = {} if dimensions is None else {"shorter_dimensions": [], "any_shorter_dimensions": False}
    return {
        "id": name,
        "object": "model",
        "created": 0,
        "owned_by": "conch",
        "task": task,
        "description": description,
        "available": True,
        "dimensions": dimensions,
        **shorter,
        "limits": _LIMITS,
    }


_SENTIMENT = _card("sentiment", "classify", "Whether a text is negative, neutral or positive (English).")
_MINILM = _card(
    "minilm-l6-v2",
    "embeddings",
    "Vectors of 384 numbers from sentence-transformers/all-MiniLM-L6-v2 (English, 256 tokens).",
    384,
)
ANSWERS: dict[str, Any] = {
    "classify": {
        "model": "sentiment",
        "version": "sentiment:1",
        "results": [
            {
                "labels": [
                    {"label": "positive", "score": 0.993973},
                    {"label": "neutral", "score": 0.005802},
                    {"label": "negative", "score": 0.000225},
                ],
                "tokens": 5,
                "truncated": False,
            },
            {
                "labels": [
                    {"label": "negative", "score": 0.940376},
                    {"label": "neutral", "score": 0.048665},
                    {"label": "positive", "score": 0.010959},
                ],
                "tokens": 8,
                "truncated": False,
            },
        ],
        "usage": {"inputs": 2, "characters": 30, "tokens": 13},
    },
    "entities": {
        "model": "pii",
        "version": "pii:1",
        "results": [
            {
                "entities": [
                    {"label": "GIVEN_NAME", "start": 11, "end": 15, "score": 0.997059, "text": "Jane"},
                    {"label": "SURNAME", "start": 16, "end": 19, "score": 0.793788, "text": "Doe"},
                    {"label": "CITY", "start": 34, "end": 45, "score": 0.999373, "text": "Springfield"},
                ],
                "tokens": 14,
                "truncated": False,
            }
        ],
        "usage": {"inputs": 1, "characters": 46, "tokens": 14},
    },
    "embeddings": {
        "object": "list",
        "data": [
            {"object": "embedding", "index": 0, "embedding": [0.120813, -0.023536, -0.036689, 0.056463]},
            {"object": "embedding", "index": 1, "embedding": [0.077972, 0.039419, 0.028882, 0.085307]},
        ],
        "model": "minilm-l6-v2",
        "usage": {"prompt_tokens": 18, "total_tokens": 18},
    },
    "analyze": {
        "model": "analyze",
        "version": "analyze:1",
        "embedding_model": None,
        "results": [
            {
                "heads": {
                    "sentiment": [{"label": "positive", "score": 0.777694}, {"label": "neutral", "score": 0.193426}],
                    "topics": [
                        {"label": "Automotive > Auto Body Styles > SUV (6)", "score": 0.652534},
                        {"label": "Automotive (1)", "score": 0.610269},
                    ],
                },
                "tokens": 9,
                "truncated": False,
            }
        ],
        "usage": {"inputs": 1, "characters": 30, "tokens": 9},
    },
    "rerank": {
        "id": "2f6b0c9e1d3a4b5c6d7e8f90",
        "model": "ms-marco-minilm",
        "version": "ms-marco-minilm:1",
        "results": [
            {"index": 1, "relevance_score": 9.085089, "tokens": 34, "truncated": False},
            {"index": 0, "relevance_score": -3.934312, "tokens": 18, "truncated": False},
        ],
        "usage": {"inputs": 3, "characters": 287, "tokens": 73, "prompt_tokens": 73, "total_tokens": 73},
        "meta": {"tokens": {"input_tokens": 73, "output_tokens": 0}},
    },
    "list_models": {"object": "list", "data": [_SENTIMENT, _MINILM]},
    "get_model": {**_SENTIMENT, "labels": {"scores": ["negative", "neutral", "positive"]}},
}
ANSWERS["rerank_for_cohere"] = ANSWERS["rerank"]
