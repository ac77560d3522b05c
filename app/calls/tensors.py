"""Tensors, asked of any model by its own signature."""

from collections.abc import Awaitable, Callable, Iterator, Sequence, Sized
from dataclasses import dataclass
from functools import partial
from itertools import islice
from time import monotonic
from typing import ClassVar

from app.errors import Flaw, InvalidInput
from app.gateway import Passage
from app.routing.route import MAX_FLAWS, Caps, Route
from app.triton.ensemble import Ensemble
from app.triton.query import Tensors
from app.triton.tensor import Tensor


@dataclass(frozen=True, slots=True)
class TensorCall:
    """A request, parsed: every tensor's bytes fill its shape. All outputs are asked for where none is named."""

    task: ClassVar[None] = None

    model: str
    inputs: Sequence[Tensor]
    outputs: Sequence[str] = ()
    version: str = ""
    timeout_ms: int | None = None

    def admit(self, caps: Caps) -> tuple[int, int]:
        """Texts cost their characters, and all else its bytes."""
        cost = sum(_cost(tensor, caps, f"/inputs/{at}/data") for at, tensor in enumerate(self.inputs))
        caps.admit_all(cost)
        return self.inputs[0].shape[0], cost

    def addressed(self, route: Route, ensemble: Ensemble) -> "Callable[[Passage], Awaitable[TensorAnswer]]":
        signature = ensemble.signature
        signature.check(self.inputs, self.outputs)
        if not route.task.bare:
            self._refuse_broken_texts()
        outputs = tuple(self.outputs) or tuple(spec.name for spec in signature.outputs)
        return partial(self._ask, route, Tensors(ensemble, self.inputs, outputs, self.version))

    async def _ask(self, route: Route, query: Tensors, passage: Passage) -> "TensorAnswer":
        started = monotonic()
        version, outputs = await passage.ask(query)
        passage.exchange.triton = monotonic() - started
        return TensorAnswer(route, version, outputs)

    def _refuse_broken_texts(self) -> None:
        """A model of texts need not be able to read anything else, and may fail on it together with its batch."""
        flaws = (flaw for at, tensor in enumerate(self.inputs) for flaw in _broken(tensor, f"/inputs/{at}/data"))
        if first := tuple(islice(flaws, MAX_FLAWS)):
            raise InvalidInput("this model reads texts", flaws=first)


@dataclass(frozen=True, slots=True)
class TensorAnswer:
    """The verified outputs, in the order in which they were asked for."""

    route: Route
    version: str
    outputs: list[Tensor]


def _cost(tensor: Tensor, caps: Caps, field: str) -> int:
    if tensor.dtype != "BYTES":
        return len(tensor.raw)
    texts: Sequence[Sized] = tensor.elements
    if len(texts) <= caps.inputs:
        texts = [_read(element) or element for element in tensor.elements]
    return caps.admit(texts, field, lambda at: f"{field}/{at}")


def _broken(tensor: Tensor, field: str) -> Iterator[Flaw]:
    for at, element in enumerate(tensor.elements):
        if _read(element) is None:
            yield Flaw(f"{field}/{at}", "not_utf8", "this is not a text in UTF-8")


def _read(element: bytes) -> str | None:
    try:
        return element.decode()
    except UnicodeDecodeError:
        return None
