"""What an ensemble is asked, and how it must answer to be believed."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol, TypeVar

from tritonclient.grpc import service_pb2 as pb

from app.triton.answer import Answer
from app.triton.ensemble import Ensemble
from app.triton.tensor import Rows, Tensor

Answered_co = TypeVar("Answered_co", covariant=True)


class Query(Protocol[Answered_co]):
    @property
    def ensemble(self) -> Ensemble: ...

    @property
    def size(self) -> int:
        """How many items it has."""
        ...

    @property
    def telling(self) -> bool:
        """Whether the model's failure on it tells of the model: not where callers write tensors as they like."""
        ...

    def request(self, request_id: str, timeout_us: int, priority: int) -> bytes:
        """A serialised `ModelInferRequest`."""
        ...

    def read(self, response: Answer) -> Answered_co:
        """Raises `BadUpstreamResponse`."""
        ...


@dataclass(frozen=True, slots=True)
class Texts:
    """Texts, and the roles of the outputs that are wanted of them."""

    telling: ClassVar[bool] = True

    ensemble: Ensemble
    roles: tuple[str, ...]
    texts: Sequence[bytes]
    query: bytes | None = None
    """What each is read beside."""

    @property
    def size(self) -> int:
        return len(self.texts)

    def request(self, request_id: str, timeout_us: int, priority: int) -> bytes:
        return self.ensemble.request(self.texts, self.roles, request_id, timeout_us, priority, self.query)

    def read(self, response: Answer) -> dict[str, Rows]:
        rows = self.ensemble.read(response, self.roles, len(self.texts))
        if self.ensemble.verify is not None:
            self.ensemble.verify(self.ensemble, self.texts, rows)
        return rows


@dataclass(frozen=True, slots=True)
class Tensors:
    """Tensors that fit the ensemble's signature, and the names of the outputs that are wanted."""

    telling: ClassVar[bool] = False

    ensemble: Ensemble
    inputs: Sequence[Tensor]
    outputs: Sequence[str]
    version: str = ""

    @property
    def size(self) -> int:
        return self.ensemble.signature.size(self.inputs)

    def request(self, request_id: str, timeout_us: int, priority: int) -> bytes:
        request = pb.ModelInferRequest(model_name=self.ensemble.name, model_version=self.version, id=request_id)
        for tensor in self.inputs:
            request.inputs.add(name=tensor.name, datatype=tensor.dtype, shape=tensor.shape)
        for name in self.outputs:
            request.outputs.add(name=name)
        request.raw_input_contents.extend(tensor.raw for tensor in self.inputs)
        request.parameters["timeout"].int64_param = timeout_us
        request.parameters["priority"].uint64_param = priority
        serialised: bytes = request.SerializeToString()
        return serialised

    def read(self, response: Answer) -> list[Tensor]:
        return self.ensemble.signature.read(response, self.outputs, self.size)


def probing(ensemble: Ensemble, text: str) -> Query[object]:
    """The smallest question that shows whether an ensemble answers."""
    if "text" in ensemble.inputs:
        query = text.encode() if "query" in ensemble.inputs else None
        return Texts(ensemble, tuple(ensemble.outputs), [text.encode()], query)
    signature = ensemble.signature
    return Tensors(ensemble, signature.zeros(text.encode()), [spec.name for spec in signature.outputs])
