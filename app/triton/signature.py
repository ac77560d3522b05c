"""A model's own tensors, as it declares them: what `/v2` shows, and holds requests and answers against."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod

from app.errors import BadUpstreamResponse, Flaw, InvalidInput
from app.triton.answer import Answer, described
from app.triton.datatype import DATATYPES, is_finite
from app.triton.tensor import Tensor, TensorSpec, fits, pack_texts, unpack_texts

_MAX_FLAWS = 16


@dataclass(frozen=True, slots=True)
class Signature:
    """In the order of the model's config. Where `max_batch` is 0, the tensors have no batch dimension."""

    max_batch: int = 0
    inputs: tuple[TensorSpec, ...] = ()
    outputs: tuple[TensorSpec, ...] = ()
    versions: tuple[str, ...] = ()

    def check(self, inputs: Sequence[Tensor], outputs: Sequence[str]) -> None:
        """Raises `InvalidInput`, which points into the body, where the model can't take the inputs or has not the outputs."""
        flaws = [*self._input_flaws(inputs), *self._batch_flaws(inputs), *self._output_flaws(outputs)]
        if flaws:
            raise InvalidInput(
                "the tensors are not those of this model; its metadata lists them", flaws=tuple(flaws[:_MAX_FLAWS])
            )

    def size(self, inputs: Sequence[Tensor]) -> int:
        """How many items they hold."""
        return inputs[0].shape[0] if self.max_batch else 1

    def dims(self, spec: TensorSpec, batch: int) -> tuple[int, ...]:
        return (batch, *spec.dims) if self.max_batch else spec.dims

    def read(self, response: Answer, names: Sequence[str], batch: int) -> list[Tensor]:
        """The verified outputs, in the order of `names`; raises `BadUpstreamResponse`."""
        if len(response.raw_output_contents) != len(response.outputs):
            raise BadUpstreamResponse("the answer's outputs and contents do not match")
        outputs = map(described, response.outputs)
        answered = {output.name: (output, raw) for output, raw in zip(outputs, response.raw_output_contents, strict=True)}
        specs = {spec.name: spec for spec in self.outputs}
        tensors = []
        for name in names:
            if name not in answered:
                raise BadUpstreamResponse("an output is missing from the answer")
            output, raw = answered[name]
            if output.datatype != specs[name].dtype:
                raise BadUpstreamResponse("an output of the answer has another datatype than the model declares")
            if not fits(output.shape, self.dims(specs[name], batch)):
                raise BadUpstreamResponse("an output of the answer has another shape than was asked for")
            tensors.append(_verified(name, output.datatype, tuple(output.shape), raw))
        return tensors

    def zeros(self, text: bytes) -> list[Tensor]:
        """The smallest inputs that there are, with `text` where a tensor holds texts."""
        return [_zero(spec, tuple(map(abs, self.dims(spec, 1))), text) for spec in self._needed()]

    def _needed(self) -> Iterator[TensorSpec]:
        return (spec for spec in self.inputs if not spec.optional)

    def _input_flaws(self, inputs: Sequence[Tensor]) -> Iterator[Flaw]:
        specs = {spec.name: spec for spec in self.inputs}
        for at, tensor in enumerate(inputs):
            spec = specs.get(tensor.name)
            if spec is None:
                yield Flaw(f"/inputs/{at}/name", "unknown_tensor", f"the model's inputs are {_listed(self.inputs)}")
            elif tensor.dtype != spec.dtype:
                yield Flaw(f"/inputs/{at}/datatype", "wrong_datatype", f"this input is {spec.dtype}")
            elif len(tensor.shape) != len(self.dims(spec, 1)) or not fits(tensor.shape, self.dims(spec, tensor.shape[0])):
                yield Flaw(f"/inputs/{at}/shape", "wrong_shape", f"this input is {_shown(self.dims(spec, -1))}")
        given = {tensor.name for tensor in inputs}
        for spec in self._needed():
            if spec.name not in given:
                yield Flaw("/inputs", "missing_tensor", f"the model needs {spec.name}")
        if len(given) < len(inputs):
            yield Flaw("/inputs", "repeated_tensor", "an input is there twice")

    def _batch_flaws(self, inputs: Sequence[Tensor]) -> Iterator[Flaw]:
        if not self.max_batch:
            return
        for at, tensor in enumerate(inputs):
            if tensor.shape[:1] != inputs[0].shape[:1]:
                yield Flaw(f"/inputs/{at}/shape", "wrong_shape", "the first dimension must be the same for every input")
            elif tensor.shape and tensor.shape[0] > self.max_batch:
                detail = f"the model takes at most {self.max_batch} items at once; send the rest in further requests"
                yield Flaw(f"/inputs/{at}/shape", "batch_too_large", detail)

    def _output_flaws(self, outputs: Sequence[str]) -> Iterator[Flaw]:
        known = {spec.name for spec in self.outputs}
        for at, name in enumerate(outputs):
            if name not in known:
                yield Flaw(f"/outputs/{at}/name", "unknown_tensor", f"the model's outputs are {_listed(self.outputs)}")
            elif name in outputs[:at]:
                yield Flaw(f"/outputs/{at}/name", "repeated_tensor", "an output is asked for twice")


def _zero(spec: TensorSpec, shape: tuple[int, ...], text: bytes) -> Tensor:
    count = prod(shape)
    raw = pack_texts([text] * count) if spec.dtype == "BYTES" else bytes(count * DATATYPES[spec.dtype].size)
    return Tensor(spec.name, spec.dtype, shape, raw)


def _verified(name: str, dtype: str, shape: tuple[int, ...], raw: bytes) -> Tensor:
    """Raises `BadUpstreamResponse` where the bytes do not fill the shape, or a number is not finite."""
    count = prod(shape)
    if dtype == "BYTES":
        return Tensor(name, dtype, shape, raw, unpack_texts(raw, count))
    if len(raw) != count * DATATYPES[dtype].size:
        raise BadUpstreamResponse("an output of the answer has more or fewer bytes than its shape")
    if not is_finite(dtype, raw):
        raise BadUpstreamResponse("an output of the answer holds numbers that are not finite")
    return Tensor(name, dtype, shape, raw)


def _listed(specs: Sequence[TensorSpec]) -> str:
    return ", ".join(spec.name for spec in specs)


def _shown(dims: tuple[int, ...]) -> str:
    return f"[{','.join(map(str, dims))}], where -1 is any size"
