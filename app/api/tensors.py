"""The bytes of the Open Inference Protocol to tensors and back: JSON, and what may follow it.

Pure functions; each works in slices, so that a large body may be given to a thread without keeping the event loop waiting.
"""

from collections.abc import Iterator, Sequence
from math import prod
from typing import Any

from pydantic_core import to_json

from app.api.body import validate
from app.api.inference_schemas import InferInput, InferRequest
from app.errors import Flaw, InvalidInput, Malformed
from app.routing.route import MAX_FLAWS
from app.triton.datatype import DATATYPES, NumbersUnfit, pack_numbers, unpack_numbers
from app.triton.tensor import Tensor, pack_texts, split_texts

_SLICE = 8_192
"""Elements that are looked at, or written as JSON, at once."""


class _Unfit(Exception):
    """An input can't be a tensor; `member` is the part of it that is at fault."""

    def __init__(self, member: str, code: str, detail: str) -> None:
        super().__init__(code)
        self.member = member
        self.code = code
        self.detail = detail


_BROKEN = "broken_binary_data"


def parted(body: bytes, json_size: int | None) -> tuple[bytes, bytes]:
    """The JSON, and the binary data after it; raises `Malformed`."""
    if json_size is None:
        return body, b""
    if json_size > len(body):
        raise Malformed("Inference-Header-Content-Length is larger than the body")
    return body[:json_size], body[json_size:]


def read_request(document: object, rest: bytes) -> tuple[InferRequest, list[Tensor]]:
    """`rest` is the binary data after the document. Raises `Malformed` and `InvalidInput`."""
    request = validate(document, InferRequest)
    return request, _tensors(request.inputs, rest)


def write_answer(head: dict[str, Any], outputs: Sequence[Tensor], binary: Sequence[bool]) -> tuple[bytes, int | None]:
    """The body, and where its JSON ends, if more follows. Raises `InvalidInput` where an output can't be written as JSON."""
    written = [_written(tensor, at, apart=apart) for at, (tensor, apart) in enumerate(zip(outputs, binary, strict=True))]
    json = b"".join([to_json(head)[:-1], b',"outputs":[', b",".join(written), b"]}"])
    apart = [tensor.raw for tensor, wanted in zip(outputs, binary, strict=True) if wanted]
    return (b"".join([json, *apart]), len(json)) if apart else (json, None)


def _tensors(inputs: Sequence[InferInput], rest: bytes) -> list[Tensor]:
    tensors: list[Tensor] = []
    flaws: list[Flaw] = []
    at = 0
    for place, given in enumerate(inputs):
        size = given.parameters.binary_data_size
        piece = None if size is None else rest[at : at + size]
        at += size or 0
        try:
            tensors.append(_tensor(given, piece))
        except _Unfit as unfit:
            flaws.append(Flaw(f"/inputs/{place}{unfit.member}", unfit.code, unfit.detail))
    if at != len(rest):
        raise Malformed("the binary data has more or fewer bytes than its inputs say by binary_data_size")
    if any(flaw.code == _BROKEN for flaw in flaws):
        raise Malformed("the binary data of an input does not fill its shape", flaws=tuple(flaws[:MAX_FLAWS]))
    if flaws:
        raise InvalidInput("an input is no tensor", flaws=tuple(flaws[:MAX_FLAWS]))
    return tensors


def _tensor(given: InferInput, raw: bytes | None) -> Tensor:
    if (raw is None) == (given.data is None):
        raise _Unfit("", "data_missing", "an input has either data or the parameter binary_data_size")
    count = prod(given.shape)
    elements: Sequence[bytes] = ()
    if raw is None:
        raw, elements = _packed(given, count)
    elif given.datatype == "BYTES":
        elements = _split(raw, count)
    elif len(raw) != count * DATATYPES[given.datatype].size:
        raise _Unfit("", _BROKEN, f"this shape takes {count * DATATYPES[given.datatype].size} bytes")
    return Tensor(given.name, given.datatype, tuple(given.shape), raw, elements)


def _packed(given: InferInput, count: int) -> tuple[bytes, Sequence[bytes]]:
    if type(given.data) is not list:
        raise _Unfit("/data", "list_type", "this must be a list")
    values = _flat(given.data)
    if len(values) != count:
        raise _Unfit("/data", "wrong_size", f"this shape takes {count} elements, and there are {len(values)}")
    if given.datatype != "BYTES":
        try:
            return pack_numbers(given.datatype, values), ()
        except NumbersUnfit as unfit:
            raise _Unfit("/data", "wrong_type", str(unfit)) from None
    if not _types(values) <= {str}:
        raise _Unfit("/data", "wrong_type", "BYTES is written as strings")
    elements = [value.encode() for value in values]
    return pack_texts(elements), elements


def _split(raw: bytes, count: int) -> list[bytes]:
    elements = split_texts(raw, count)
    if elements is None:
        detail = f"this shape takes {count} elements, each of them a length of four bytes and so many bytes"
        raise _Unfit("", _BROKEN, detail)
    return elements


def _flat(values: list[Any]) -> list[Any]:
    while _types(values) == {list}:
        rows, values = values, []
        for row in rows:
            values += row
    return values


def _types(values: list[Any]) -> set[type]:
    return set().union(*(map(type, values[start : start + _SLICE]) for start in range(0, len(values), _SLICE)))


def _written(tensor: Tensor, at: int, *, apart: bool) -> bytes:
    head: dict[str, Any] = {"name": tensor.name, "datatype": tensor.dtype, "shape": tensor.shape}
    if apart:
        return to_json({**head, "parameters": {"binary_data_size": len(tensor.raw)}})
    return b"".join([to_json(head)[:-1], b',"data":[', b",".join(_elements(tensor, at)), b"]}"])


def _elements(tensor: Tensor, at: int) -> Iterator[bytes]:
    """The brackets of each slice are cut off, since they are joined to one list."""
    if tensor.dtype == "BYTES":
        texts = _texts(tensor, at)
        yield from (to_json(texts[start : start + _SLICE])[1:-1] for start in range(0, len(texts), _SLICE))
    else:
        step = _SLICE * DATATYPES[tensor.dtype].size
        for start in range(0, len(tensor.raw), step):
            yield to_json(unpack_numbers(tensor.dtype, tensor.raw[start : start + step]))[1:-1]


def _texts(tensor: Tensor, at: int) -> list[str]:
    try:
        return [element.decode() for element in tensor.elements]
    except UnicodeDecodeError:
        flaw = Flaw(f"/outputs/{at}", "not_utf8", f"{tensor.name} holds bytes that are no text: ask for it with binary_data")
        raise InvalidInput("an output can't be written as JSON", flaws=(flaw,)) from None
