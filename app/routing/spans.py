"""What the places that a model marks in a text must be."""

from array import array
from collections.abc import Mapping, Sequence

from app.errors import BadUpstreamResponse
from app.triton.ensemble import Ensemble
from app.triton.tensor import Rows


def verify_spans(ensemble: Ensemble, texts: Sequence[bytes], rows: Mapping[str, Rows]) -> None:
    """Raises `BadUpstreamResponse` unless each span is a place in its text, and has a label and a score."""
    labels = len(ensemble.labels["spans"])
    for text, spans, scores in zip(texts, rows["spans"], rows["span_scores"], strict=True):
        if len(spans) != 3 * len(scores):
            raise BadUpstreamResponse("the answer has more or fewer scores than spans")
        _verify(spans, len(text.decode()), labels)


def _verify(spans: "array[int]", length: int, labels: int) -> None:
    for at in range(0, len(spans), 3):
        start, end, label = spans[at : at + 3]
        if start < 0:
            return  # padding, up to the longest list of the batch
        if not (start < end <= length and 0 <= label < labels):
            raise BadUpstreamResponse("the answer marks a place that the text does not have")
