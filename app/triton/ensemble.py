"""An ensemble's contract, and the request that is prepared from it once and filled in for each call."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from tritonclient.grpc import service_pb2 as pb

from app.errors import BadUpstreamResponse
from app.triton.answer import Answer, described
from app.triton.signature import Signature
from app.triton.tensor import Column, Rows, TensorSpec, pack_texts

Key = TypeVar("Key")
Value = TypeVar("Value")
Verify = Callable[["Ensemble", Sequence[bytes], Mapping[str, Rows]], None]
"""Raises `BadUpstreamResponse` where rows, though well-formed, can't be the answer to these texts."""

Layout = list[tuple[str, int, Column]]
"""For each role, which of an answer's contents it is, and how that is read."""
_Common = tuple[tuple[str, ...], int, int, bool]
"""What requests have in common: the roles, the number of texts, the priority, and whether there is no query beside them."""
_MOST_KEPT = 512


@dataclass(frozen=True, slots=True)
class Ensemble:
    """What a live Triton says of one ensemble, as far as a route needs it. Two are equal when they can serve for each other."""

    name: str
    version: str
    max_batch: int
    """The most items of one call; the first dimension of every tensor."""
    inputs: Mapping[str, TensorSpec]
    """By role, as the outputs are."""
    outputs: Mapping[str, TensorSpec]
    labels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By the role that they name the values of."""
    embedding_model: str = ""
    capacity: int = field(default=0, compare=False)
    """How many items one endpoint computes at once: those of its narrowest member. 0 where that is not known."""
    remarks: tuple[str, ...] = field(default=(), compare=False)
    """What its members make of the timeouts and priorities that are sent to them, where that is not what one would expect."""
    verify: Verify | None = field(default=None, compare=False)
    signature: Signature = field(default_factory=Signature, compare=False)
    """All its tensors, those that no role needs among them."""
    _fixed: dict[_Common, bytes] = field(default_factory=dict, compare=False, repr=False)
    _layouts: dict[object, Layout] = field(default_factory=dict, compare=False, repr=False)

    def request(
        self,
        texts: Sequence[bytes],
        roles: tuple[str, ...],
        request_id: str,
        timeout_us: int,
        priority: int,
        query: bytes | None = None,
    ) -> bytes:
        """A serialised `ModelInferRequest` for `texts`, that asks for the outputs of `roles` and no others. Each text is read
        beside `query`, where there is one.

        Protobuf messages merge when their bytes are joined, so that what many requests have in common is serialised once.
        """
        batch = len(texts)
        key = roles, batch, priority, query is None
        fixed = self._fixed.get(key) or self._prepare(key)
        filled = pb.ModelInferRequest(id=request_id, raw_input_contents=[pack_texts(texts)])
        if query is not None:
            filled.raw_input_contents.append(pack_texts([query] * batch))
        filled.parameters["timeout"].int64_param = timeout_us
        serialised: bytes = filled.SerializeToString()
        return fixed + serialised

    def read(self, response: Answer, roles: tuple[str, ...], batch: int) -> dict[str, Rows]:
        """The verified rows of each role; raises `BadUpstreamResponse`.

        Most answers describe their outputs in the same bytes as one before them, so that only a new description is looked into.
        """
        outputs, contents = tuple(response.outputs), response.raw_output_contents
        key = roles, batch, outputs
        layout = self._layouts.get(key) or _kept(self._layouts, key, list(self._lay_out(outputs, roles, batch)))
        if len(contents) != len(outputs):
            raise BadUpstreamResponse("the answer's outputs and contents do not match")
        return {role: column.rows(contents[at]) for role, at, column in layout}

    def _lay_out(self, outputs: Sequence[bytes], roles: tuple[str, ...], batch: int) -> Iterator[tuple[str, int, Column]]:
        """Triton answers in an order of its own."""
        answered = {output.name: (at, output) for at, output in enumerate(map(described, outputs))}
        for role in roles:
            spec = self.outputs[role]
            if spec.name not in answered:
                raise BadUpstreamResponse("an output is missing from the answer")
            at, output = answered[spec.name]
            if output.datatype != spec.dtype:
                raise BadUpstreamResponse("an output of the answer has another datatype than the model declares")
            yield role, at, Column.of(spec, output.shape, batch)

    def _prepare(self, key: _Common) -> bytes:
        roles, batch, priority, alone = key
        request = pb.ModelInferRequest(model_name=self.name, model_version=self.version)
        for role in ("text",) if alone else ("text", "query"):
            request.inputs.add(name=self.inputs[role].name, datatype="BYTES", shape=(batch, 1))
        for role in roles:
            request.outputs.add(name=self.outputs[role].name)
        request.parameters["priority"].uint64_param = priority
        serialised: bytes = request.SerializeToString()
        return _kept(self._fixed, key, serialised)


def _kept(memory: dict[Key, Value], key: Key, value: Value) -> Value:
    if len(memory) >= _MOST_KEPT:
        memory.clear()
    memory[key] = value
    return value
