"""The bytes of the Open Inference Protocol to tensors and back: JSON, and what may follow it.

What is large is worked on in turns: beside a thread that computes, the event loop waits 5 ms for the interpreter each time.
"""

from collections.abc import AsyncIterator, Sequence
from itertools import chain, islice
from math import prod
from typing import Any

from pydantic_core import to_json

from app.api.body import validate
from app.api.inference_schemas import InferInput, InferRequest
from app.api.turns import Turn, let_go
from app.errors import Flaw, InvalidInput, Malformed, TooLarge
from app.routing.route import MAX_FLAWS
from app.triton.datatype import DATATYPES, NumbersUnfit, pack_numbers, unpack_numbers
from app.triton.tensor import Tensor, pack_texts, take_texts

_SLICE = 4_096
"""Elements that are looked at, or written as JSON, at once."""
_PIECE_BYTES = 64 * 1024


class _Unfit(Exception):
    """An input can't be a tensor; `member` is the part of it that is at fault."""

    def __init__(self, member: str, code: str, detail: str) -> None:
        super().__init__(code)
        self.member = member
        self.code = code
        self.detail = detail


_BROKEN = "broken_binary_data"


def parted(body: bytes | bytearray, json_size: int | None) -> tuple[bytes | bytearray, memoryview]:
    """The JSON, and the binary data after it; raises `Malformed`."""
    if json_size is None:
        return body, memoryview(b"")
    if json_size > len(body):
        raise Malformed("Inference-Header-Content-Length is larger than the body")
    return body[:json_size], memoryview(body)[json_size:]


async def read_request(document: object, rest: memoryview, most: int) -> tuple[InferRequest, list[Tensor]]:
    """`rest` is the binary data after the document; all tensors together may have `most` bytes. Raises `Malformed`,
    `InvalidInput` and `TooLarge`.
    """
    request = validate(document, InferRequest)
    if sum(_declared_bytes(given) for given in request.inputs) > most:
        raise TooLarge(f"all tensors of a request may have at most {most} bytes")
    return request, await _tensors(request.inputs, rest)


def _declared_bytes(given: InferInput) -> int:
    return 0 if given.datatype == "BYTES" else prod(given.shape) * DATATYPES[given.datatype].size


async def write_answer(
    head: dict[str, Any], outputs: Sequence[Tensor], binary: Sequence[bool]
) -> tuple[list[bytes], int | None]:
    """The body, in pieces, and where its JSON ends, if more follows. Raises `InvalidInput` where an output can't be written as
    JSON.
    """
    pieces, held, size = [], bytearray(to_json(head)[:-1] + b',"outputs":['), 0
    turn = Turn()
    for at, (tensor, apart) in enumerate(zip(outputs, binary, strict=True)):
        held += b"," if at else b""
        async for written in _written(tensor, at, turn, apart=apart):
            held += written
            if len(held) >= _PIECE_BYTES:
                size += len(held)
                pieces.append(bytes(held))
                held.clear()
    pieces.append(bytes(held) + b"]}")
    size += len(pieces[-1])
    rest = [tensor.raw for tensor, apart in zip(outputs, binary, strict=True) if apart]
    return [*pieces, *rest], size if rest else None


async def _tensors(inputs: Sequence[InferInput], rest: memoryview) -> list[Tensor]:
    tensors: list[Tensor] = []
    flaws: list[Flaw] = []
    at, turn = 0, Turn()
    for place, given in enumerate(inputs):
        size = given.parameters.binary_data_size
        piece = None if size is None else bytes(rest[at : at + size])
        at += size or 0
        try:
            tensors.append(await _tensor(given, piece, turn))
        except _Unfit as unfit:
            flaws.append(Flaw(f"/inputs/{place}{unfit.member}", unfit.code, unfit.detail))
    if at != len(rest):
        raise Malformed("the binary data has more or fewer bytes than its inputs say by binary_data_size")
    if any(flaw.code == _BROKEN for flaw in flaws):
        raise Malformed("the binary data of an input does not fill its shape", flaws=tuple(flaws[:MAX_FLAWS]))
    if flaws:
        raise InvalidInput("an input is no tensor", flaws=tuple(flaws[:MAX_FLAWS]))
    return tensors


async def _tensor(given: InferInput, raw: bytes | None, turn: Turn) -> Tensor:
    if (raw is None) == (given.data is None):
        raise _Unfit("", "data_missing", "an input has either data or the parameter binary_data_size")
    count = prod(given.shape)
    elements: Sequence[bytes] = ()
    if raw is None:
        raw, elements = await _packed(given, count, turn)
    elif given.datatype == "BYTES":
        elements = await _split(raw, count, turn)
    elif len(raw) != count * DATATYPES[given.datatype].size:
        raise _Unfit("", _BROKEN, f"this shape takes {count * DATATYPES[given.datatype].size} bytes")
    return Tensor(given.name, given.datatype, tuple(given.shape), raw, elements)


async def _packed(given: InferInput, count: int, turn: Turn) -> tuple[bytes, Sequence[bytes]]:
    if type(given.data) is not list:
        raise _Unfit("/data", "list_type", "this must be a list")
    values = await _flat(given.data, turn)
    if len(values) != count:
        raise _Unfit("/data", "wrong_size", f"this shape takes {count} elements, and there are {len(values)}")
    raw, elements = bytearray(), list[bytes]()
    for start in range(0, count, _SLICE):
        some = values[start : start + _SLICE]
        try:
            if given.datatype == "BYTES":
                texts = _encoded(some)
                elements += texts
                raw += pack_texts(texts)
            else:
                raw += pack_numbers(given.datatype, some)
        except NumbersUnfit as unfit:
            raise _Unfit("/data", "wrong_type", str(unfit)) from None
        await turn.pause()
    while values is not given.data and values:
        del values[-_SLICE:]
        await turn.pause()
    return bytes(raw), elements


def _encoded(values: list[Any]) -> list[bytes]:
    if not set(map(type, values)) <= {str}:
        raise _Unfit("/data", "wrong_type", "BYTES is written as strings")
    return [value.encode() for value in values]


async def _split(raw: bytes, count: int, turn: Turn) -> list[bytes]:
    elements: list[bytes] = []
    at = 0
    while len(elements) < count:
        taken = take_texts(raw, at, min(count - len(elements), _SLICE))
        if taken is None:
            break
        elements += taken[0]
        at = taken[1]
        await turn.pause()
    if len(elements) < count or at != len(raw):
        await let_go(elements, turn)
        detail = f"this shape takes {count} elements, each of them a length of four bytes and so many bytes"
        raise _Unfit("", _BROKEN, detail)
    return elements


async def _flat(values: list[Any], turn: Turn) -> list[Any]:
    while await _types(values, turn) == {list}:
        rows, values = values, []
        for start in range(0, len(rows), _SLICE):
            items = chain.from_iterable(rows[start : start + _SLICE])
            while some := list(islice(items, _SLICE)):
                values += some
                await turn.pause()
            await turn.pause()
    return values


async def _types(values: list[Any], turn: Turn) -> set[type]:
    types: set[type] = set()
    for start in range(0, len(values), _SLICE):
        types.update(map(type, values[start : start + _SLICE]))
        await turn.pause()
    return types


async def _written(tensor: Tensor, at: int, turn: Turn, *, apart: bool) -> AsyncIterator[bytes]:
    """The brackets of each slice of its elements are cut off, since they are joined to one list."""
    head: dict[str, Any] = {"name": tensor.name, "datatype": tensor.dtype, "shape": tensor.shape}
    if apart:
        yield to_json({**head, "parameters": {"binary_data_size": len(tensor.raw)}})
        return
    yield to_json(head)[:-1] + b',"data":['
    for start in range(0, prod(tensor.shape), _SLICE):
        yield (b"," if start else b"") + to_json(_said(tensor, start, at))[1:-1]
        await turn.pause()
    yield b"]}"


def _said(tensor: Tensor, start: int, at: int) -> list[Any]:
    """Some of its elements, as JSON has them."""
    if tensor.dtype != "BYTES":
        size = DATATYPES[tensor.dtype].size
        return unpack_numbers(tensor.dtype, tensor.raw[start * size : (start + _SLICE) * size])
    try:
        return [element.decode() for element in tensor.elements[start : start + _SLICE]]
    except UnicodeDecodeError:
        flaw = Flaw(f"/outputs/{at}", "not_utf8", f"{tensor.name} holds bytes that are no text: ask for it with binary_data")
        raise InvalidInput("an output can't be written as JSON", flaws=(flaw,)) from None
