"""What the scripted Triton of the session serves: one model of every task."""

import json

from tritonclient.grpc import model_config_pb2 as config_pb

from tests.fakes.triton import REMARKS, TEXT, model

COLOURS = ("red", "green", "blue")
KINDS = ("name", "place")

STAGED = """
routes:
  words:
    task: classify
    targets: [{ensemble: words}]
    limits: {inputs: 10000, characters_per_input: 200, characters: 100000}
    required: true
  vectors:
    task: embeddings
    targets: [{ensemble: vectors}]
    limits: {inputs: 10000, characters_per_input: 200, characters: 100000}
    required: true
  spans:
    task: entities
    targets: [{ensemble: spans}]
    limits: {inputs: 10000, characters_per_input: 200, characters: 100000}
    required: true
  heads:
    task: analyze
    targets: [{ensemble: heads}]
    limits: {inputs: 10000, characters_per_input: 200, characters: 100000}
    required: true
  pairs:
    task: rerank
    targets: [{ensemble: pairs}]
    limits: {inputs: 10000, characters_per_input: 200, characters: 100000}
    required: true
  strange-pairs:
    task: rerank
    targets: [{ensemble: strange-pairs}]
    tensors: {text: passage, query: question, score: relevance}
  cut:
    task: embeddings
    targets: [{ensemble: vectors}]
    dimensions: [2, 4]
  cut-anywhere:
    task: embeddings
    targets: [{ensemble: vectors}]
    dimensions: any
  lax:
    task: classify
    targets: [{ensemble: words}]
    limits: {allow_empty: true}
  brief:
    task: classify
    targets: [{ensemble: brief}]
    limits: {inputs: 1000}
    concurrency: 1
"""


def staged_models() -> dict[str, config_pb.ModelConfig]:
    labels = json.dumps(COLOURS)
    models = (
        model("words", {"SCORES": ("FP32", (3,)), **REMARKS}, parameters={"labels": labels}),
        model("brief", {"SCORES": ("FP32", (3,)), **REMARKS}, parameters={"labels": labels}, max_batch=4),
        model("pairs", {"SCORE": ("FP32", (1,)), **REMARKS}, inputs={**TEXT, "QUERY": ("BYTES", (1,))}, max_batch=4),
        model("strange-pairs", {"relevance": ("FP32", (1,))}, inputs={"passage": ("BYTES", (1,)), "question": ("BYTES", (1,))}),
        model("vectors", {"EMBEDDING": ("FP32", (8,)), **REMARKS}),
        model(
            "spans",
            {"SPANS": ("INT32", (-1, 3)), "SPAN_SCORES": ("FP32", (-1,)), **REMARKS},
            parameters={"labels": json.dumps(KINDS)},
        ),
        model(
            "heads",
            {"MOOD": ("FP32", (2,)), "COLOUR": ("FP32", (3,)), "EMBEDDING": ("FP32", (8,)), **REMARKS},
            parameters={"labels.mood": '["good", "bad"]', "labels.colour": labels, "embedding_model": "vectors"},
        ),
    )
    return {config.name: config for config in models}
