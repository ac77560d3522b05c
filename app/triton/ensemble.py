"""An ensemble's contract, and the request that is prepared from it once and filled in for each call."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tritonclient.grpc import service_pb2 as pb

from app.errors import BadUpstreamResponse
from app.triton.tensor import Rows, TensorSpec, pack_texts, unpack_rows


@dataclass(frozen=True, slots=True)
class Ensemble:
    """What a live Triton says of one ensemble, as far as a route needs it. Two are equal when they can serve for each other."""

    name: str
    version: str
    max_batch: int
    """The most items of one call; the first dimension of every tensor."""
    text: TensorSpec
    outputs: Mapping[str, TensorSpec]
    """By role."""
    labels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By the role that they name the values of."""
    embedding_model: str = ""
    capacity: int = field(default=0, compare=False)
    """How many items one endpoint computes at once: those of its narrowest member. 0 where that is not known."""
    remarks: tuple[str, ...] = field(default=(), compare=False)
    """What its members make of the timeouts and priorities that are sent to them, where that is not what one would expect."""
    _fixed: dict[tuple[str, ...], bytes] = field(default_factory=dict, compare=False, repr=False)

    def request(self, texts: Sequence[bytes], roles: tuple[str, ...], request_id: str, timeout_us: int, priority: int) -> bytes:
        """A serialised `ModelInferRequest` for `texts`, that asks for the outputs of `roles` and no others.

        Protobuf messages merge when their bytes are joined, so the fixed half is serialised once for each set of roles.
        """
        fixed = self._fixed.get(roles) or self._prepare(roles)
        filled = pb.ModelInferRequest(id=request_id, raw_input_contents=[pack_texts(texts)])
        filled.inputs.add(name=self.text.name, datatype="BYTES", shape=(len(texts), 1))
        filled.parameters["timeout"].int64_param = timeout_us
        filled.parameters["priority"].uint64_param = priority
        serialised: bytes = filled.SerializeToString()
        return fixed + serialised

    def read(self, response: pb.ModelInferResponse, roles: tuple[str, ...], batch: int) -> dict[str, Rows]:
        """The verified rows of each role; raises `BadUpstreamResponse`. Triton answers in an order of its own."""
        if len(response.raw_output_contents) != len(response.outputs):
            raise BadUpstreamResponse("the answer's outputs and contents do not match")
        answered = {output.name: at for at, output in enumerate(response.outputs)}
        rows: dict[str, Rows] = {}
        for role in roles:
            spec = self.outputs[role]
            at = answered.get(spec.name)
            if at is None:
                raise BadUpstreamResponse("an output is missing from the answer")
            output = response.outputs[at]
            if output.datatype != spec.dtype:
                raise BadUpstreamResponse("an output of the answer has another datatype than the model declares")
            rows[role] = unpack_rows(response.raw_output_contents[at], spec, output.shape, batch)
        return rows

    def _prepare(self, roles: tuple[str, ...]) -> bytes:
        request = pb.ModelInferRequest(model_name=self.name, model_version=self.version)
        for role in roles:
            request.outputs.add(name=self.outputs[role].name)
        fixed: bytes = request.SerializeToString()
        self._fixed[roles] = fixed
        return fixed
