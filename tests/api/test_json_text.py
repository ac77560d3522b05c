"""A large text is read in turns, with the very same result, and nobody else waits for it."""

import asyncio
import gc
import json
from collections.abc import Awaitable, Callable, Iterator
from random import Random
from time import thread_time
from typing import Any

import pytest
from starlette.requests import Request
from starlette.types import Message

from app.api import json_text
from app.api.body import BodyLimits, read_json, validate_calmly
from app.api.hold import Hold
from app.api.json_text import parse_calmly
from app.api.rerank import RerankRequest
from app.api.schemas import ClassifyRequest
from app.api.strict_json import DEEPEST, parse
from app.api.tensors import read_request
from app.errors import InvalidInput, Malformed, Refusal, TooLarge
from app.main import _settle_allocator, _settle_collector
from app.tenancy.tenant import Principal, Quota, Tenant

MEGABYTE = 2**20
SCALARS = (1, -2.5, 1e10, True, None, "", 'x"y', "a,b]}", "\\", "\U0001f600", "[", "\n")
NAMES = ("a", "b", 'q"x', "\\", "[", "\u00e9\U0001f600", ",")
DAMAGE = b'[]{},:"\\ 1e\n\x0b\xff'


def invented(dice: Random, depth: int = 0) -> Any:
    kind = dice.random() if depth else dice.random() * 0.6
    if depth < 4 and kind < 0.3:
        return [invented(dice, depth + 1) for _ in range(dice.randrange(6))]
    if depth < 4 and kind < 0.6:
        return {dice.choice(NAMES) + str(dice.randrange(4)): invented(dice, depth + 1) for _ in range(dice.randrange(5))}
    return dice.choice(SCALARS)


def damaged(dice: Random, text: bytes) -> bytes:
    for _ in range(dice.choice((0, 0, 1, 1, 2))):
        at = dice.randrange(len(text) + 1)
        text = text[:at] + bytes([dice.choice(DAMAGE)] * dice.randrange(2)) + text[at + dice.randrange(2) :]
    return text.replace(b'1":', b'2":') if dice.random() < 0.2 else text  # members that are there twice


@pytest.fixture
def pieces(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Of a few bytes, as if each text were large."""
    with monkeypatch.context() as patched:
        for name, value in {"_AT_ONCE_BYTES": -1, "_AT_ONCE_TEXT_BYTES": -1, "_PIECE_BYTES": 3}.items():
            patched.setattr(json_text, name, value)
        yield


async def outcome(reading: Awaitable[object]) -> str:
    try:
        return repr(await reading)
    except Malformed:
        return "malformed"


@pytest.mark.usefixtures("pieces")
async def test_what_is_read_piece_by_piece_is_what_is_read_at_once() -> None:
    dice = Random(7)
    taken = 0
    for _ in range(3_000):
        document = invented(dice)
        text = damaged(dice, json.dumps(document, ensure_ascii=dice.random() < 0.5, indent=dice.choice((None, 1))).encode())
        try:
            whole = parse(text)
        except Malformed:
            assert await outcome(parse_calmly(text, asyncio.Lock())) == "malformed", text
        else:
            taken += isinstance(whole, list | dict)
            expected = repr(whole) if isinstance(whole, list | dict) else "malformed"
            assert await outcome(parse_calmly(text, asyncio.Lock())) == expected, text
    assert 1_000 < taken < 2_000


NESTS = [("[", "]"), ('{"a":', "}"), ('[1,{"a":[', "]}]"), ('["[[{{",', "]")]


@pytest.mark.parametrize(("opened", "closed"), NESTS)
@pytest.mark.parametrize("padding", [0, 40_000], ids=["at once", "in turns"])
async def test_what_is_nested_deeply_is_refused(opened: str, closed: str, padding: int) -> None:
    levels = sum(bracket in "[{" for bracket in opened.replace('"[[{{"', ""))

    def nested(times: int, more: str = "null") -> bytes:
        return (opened * times + more + "".join(" " * padding + bracket for bracket in closed * times)).encode()

    times, rest = divmod(DEEPEST, levels)
    assert await parse_calmly(nested(times, "[" * rest + "]" * rest or "null"), asyncio.Lock())
    with pytest.raises(Malformed, match="more than 32 levels"):
        await parse_calmly(nested(times, "[" * (rest + 1) + "]" * (rest + 1)), asyncio.Lock())


def test_brackets_within_strings_are_no_levels() -> None:
    assert parse(json.dumps(["[{" * 100] * 10).encode()) == ["[{" * 100] * 10


LARGE: dict[str, Callable[[], bytes]] = {
    "10,000 texts in 50 MB": lambda: b'{"inputs":[' + b",".join([b'"%s"' % (b"x y, z " * 750)] * 10_000) + b"]}",
    "10,000 texts of emoji": lambda: json.dumps(["\U0001f600" * 100] * 10_000, ensure_ascii=False).encode(),
    "a text of escapes": lambda: b'["%s"]' % (rb"\"" * (MEGABYTE // 2 - 2)),
    "2,000,000 numbers": lambda: b'{"data":[' + b"1," * 2_000_000 + b"1]}",
    "10,000 members": lambda: json.dumps({str(at): at for at in range(10_000)}, indent=150).encode(),
}
REFUSED: dict[str, tuple[type[Refusal], Callable[[], bytes]]] = {
    "1,400,000 lists": (TooLarge, lambda: b"[" + b"[]," * 1_400_000 + b"[]]"),
    "300,000 members": (TooLarge, lambda: json.dumps({str(at): at for at in range(300_000)}).encode()),
    "1,000,000 texts": (TooLarge, lambda: b"[" + b'"a",' * 1_000_000 + b'"a"]'),
    "a text of 4 MB": (TooLarge, lambda: b'["' + b"a" * 4 * MEGABYTE + b'"]'),
    "a text of backslashes": (TooLarge, lambda: b'["' + b"\\" * 4 * MEGABYTE + b'"]'),
    "2,000,000 brackets": (Malformed, lambda: b"[" * 2_000_000),
    "2,000,000 quotes": (TooLarge, lambda: b"[" + b'"' * 2_000_000),
    "blanks": (TooLarge, lambda: b" " * 4 * MEGABYTE),
    "digits": (TooLarge, lambda: b"[" + b"9" * 4 * MEGABYTE + b"]"),
    "blanks within": (TooLarge, lambda: b'{"a":1' + b" " * 4 * MEGABYTE + b"}"),
    "an open end": (Malformed, lambda: b'{"data":[' + b"1," * 1_000_000),
    "two documents": (Malformed, lambda: (b'["' + b"a" * 700_000 + b'"]') * 2),
}


_TURN = 0.02
"""Seconds of CPU; a third of that on a machine that has nothing else to do. `tests/load/holding.py` tells the times."""
_YARD = json.dumps(list(range(50_000)))


def yard() -> float:
    """Less than a quarter of a turn, unless the machine is slower just now than it usually is; then a turn takes longer too."""
    before = thread_time()
    json.loads(_YARD)
    return thread_time() - before


class Pulse:
    """The longest time for which this thread worked on something else than the pulse."""

    def __init__(self) -> None:
        self.longest = 0.0

    async def beat(self) -> None:
        before = thread_time()
        while True:
            await asyncio.sleep(0)
            self.longest, before = max(self.longest, thread_time() - before), thread_time()


async def assert_calm(work: Callable[[], Awaitable[object]]) -> None:
    """The best of five tries: a busy machine only adds to a turn."""
    tries = []
    for _ in range(5):
        pulse = Pulse()
        beating = asyncio.create_task(pulse.beat())
        await asyncio.sleep(0)
        await work()
        await asyncio.sleep(0)
        beating.cancel()
        most = max(_TURN, 4 * yard())
        if pulse.longest < most:
            return
        tries.append((pulse.longest, most))
    raise AssertionError(f"the longest turn, and what it may take, in seconds: {tries}")


@pytest.fixture(scope="module", autouse=True)
def _collector() -> Iterator[None]:
    """As the gateway has it."""
    before = gc.get_threshold()
    _settle_collector()
    _settle_allocator()
    yield
    gc.set_threshold(*before)
    gc.unfreeze()


@pytest.mark.parametrize("made", LARGE.values(), ids=LARGE)
async def test_no_body_holds_the_event_loop(made: Callable[[], bytes]) -> None:
    text = made()
    await assert_calm(lambda: parse_calmly(text, asyncio.Lock()))


async def refusal(text: bytes) -> type[Refusal] | None:
    """As a caller has it; what was made of the text until then is let go of."""
    messages: Iterator[Message] = iter(
        [{"type": "http.request", "body": text[:-1], "more_body": True}, {"type": "http.request", "body": text[-1:]}]
    )
    principal = Principal(Tenant("acme", "plain", ("*",), Quota()), "key", frozenset({"infer"}))

    async def receive() -> Message:
        return next(messages)

    headers = [(b"content-type", b"application/json")]
    request = Request({"type": "http", "headers": headers, "state": {"principal": principal}}, receive)
    try:
        await read_json(request, BodyLimits(len(text), 60, Hold(2 * len(text))), ClassifyRequest)
    except Refusal as refused:
        return type(refused)
    return None


@pytest.mark.parametrize(("kind", "made"), REFUSED.values(), ids=REFUSED)
async def test_what_only_costs_is_refused_and_does_not_hold_the_event_loop_either(
    kind: type[Refusal], made: Callable[[], bytes]
) -> None:
    text = made()

    async def work() -> None:
        assert await refusal(text) is kind

    await assert_calm(work)


async def test_one_large_body_at_a_time_is_read() -> None:
    lock = asyncio.Lock()
    async with lock:
        reading = asyncio.create_task(parse_calmly(LARGE["2,000,000 numbers"](), lock))
        small = asyncio.create_task(parse_calmly(b"[1]", lock))
        assert await small == [1]
        assert not reading.done()
    assert isinstance(await reading, dict)


async def faults(*inputs: object) -> tuple[str, ...]:
    with pytest.raises(InvalidInput) as refused:
        await validate_calmly({"model": "m", "inputs": list(inputs)}, ClassifyRequest)
    return tuple(flaw.pointer for flaw in refused.value.flaws)


async def test_faults_far_down_a_long_list_are_pointed_to() -> None:
    assert await faults(*["a"] * 12_345, 1, *["a"] * 1000, 2) == ("/inputs/12345",)
    assert await faults(*["a"] * 255, 1, *[1] * 90_000) == ("/inputs/255",), "a part is enough"
    assert await faults(*[1] * 90_000) == tuple(f"/inputs/{at}" for at in range(16))
    assert await faults(*["a"] * 100_001) == ("/inputs",)


@pytest.mark.parametrize("count", [255, 256, 257, 512, 99_999])
async def test_a_long_list_without_a_fault_is_taken_whole(count: int) -> None:
    inputs = list(map(str, range(count)))
    assert (await validate_calmly({"model": "m", "inputs": inputs}, ClassifyRequest)).inputs == inputs


async def test_long_lists_of_objects_are_held_against_their_shape_in_turns() -> None:
    document = {"model": "m", "query": "q", "documents": [{"text": str(at), "id": at} for at in range(50_000)]}
    body = await validate_calmly(document, RerankRequest)
    assert body.documents[-1].model_dump() == {"text": "49999", "id": 49_999}  # type: ignore[union-attr]
    await assert_calm(lambda: validate_calmly(document, RerankRequest))


NUMBERS = 10_000_000
TENSORS = {
    "rows": ({"data": [[0] * (NUMBERS // 10)] * 10, "datatype": "INT8", "shape": [10, NUMBERS // 10]}, b""),
    "texts that end early": ({"datatype": "BYTES", "shape": [3_000_000]}, b"\2\0\0\0ab" * 2_000_000),
}


@pytest.mark.parametrize(("given", "raw"), TENSORS.values(), ids=TENSORS)
async def test_no_tensor_holds_the_event_loop(given: dict[str, Any], raw: bytes) -> None:
    parameters = {"binary_data_size": len(raw)} if raw else {}
    document = {"inputs": [{"name": "a", **given, "parameters": parameters}]}

    async def work() -> None:
        try:
            _, [tensor] = await read_request(document, memoryview(raw), NUMBERS)
            assert tensor.raw == bytes(NUMBERS)
        except Malformed:
            assert raw

    await assert_calm(work)
