"""How long large and hostile bodies hold the event loop, in CPU: `python tests/load/holding.py`.

A pulse within the gateway beats once in each turn of its event loop, and tells of the turns that were long.
"""

import asyncio
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from app import server
from app.house import House
from app.local.address import Address
from app.local.triton import install
from app.local.watchdog import Watchdog
from app.settings import Settings
from app.tenancy.key import new_key
from tests.load.bench import TENANTS, process, ready, serving
from tests.load.callers import post
from tests.peers import Redis, Triton

POSTS, LONG = 4, 0.002
BYTES = 4 * 1024 * 1024 - 200
ROUTES = """
routes:
  noop:
    task: classify
    targets: [{ensemble: noop}]
    required: true
    limits: {inputs: 10000, characters_per_input: 4000000, characters: 4000000}
"""


def bodies() -> Iterator[tuple[str, str, bytes]]:
    """Each with its path."""
    for name, items in {
        "10,000 texts": repeated(b'"%s",' % (b"a b " * 100), 10_000),
        "lists": filled(b"[],"),
        "objects": filled(b"{},"),
        "numbers": filled(b"1,"),
        "quotes": filled(b'"a",'),
        "members": b"{%s}" % b",".join(b'"%d":1' % at for at in range(300_000)),
        "lists in 64 kB": repeated(b"[],", 21_000),
        "lists of lists in 64 kB": repeated(b"[[[[[[]]]]]],", 5_000),
        "lists beside a text of 1 MB": repeated(b"[],", 4_000) + b',"%s"' % (b"a" * 1_000_000),
        "escapes": b'"%s"' % (rb"\ud83d\ude00" * 80_000),
        "emoji": repeated(b'"%s",' % ("\U0001f600" * 200_000).encode(), 4),
        "no UTF-8": repeated(b'"%s",' % (b"a" * 400 + b"\xff"), 10_000),
        "one text": b'"%s"' % (b"a" * BYTES),
        "backslashes": b'"%s"' % (b"\\" * BYTES),
        "blanks": b" " * BYTES,
        "brackets": b"[" * BYTES,
    }.items():
        yield name, "/v1/classify", b'{"model":"noop","inputs":[%s]}' % items
    for name, (dtype, count, items) in {
        "tensor of INT32": (b"INT32", 1_000_000, repeated(b"0,", 1_000_000)),
        "tensor beyond the cap": (b"INT64", 2_000_000, repeated(b"0,", 2_000_000)),
        "tensor of FP32": (b"FP32", 600_000, repeated(b"0.125,", 600_000)),
        "tensor of long texts": (b"BYTES", 60, repeated(b'"%s",' % (b"a" * 60_000), 60)),
        "tensor of short texts": (b"BYTES", 100_000, repeated(b'"%s",' % (b"a" * 30), 100_000)),
        "tensor of lists": (b"INT32", 1_000_000, repeated(b"[1],", 1_000_000)),
    }.items():
        yield name, "/v2/models/noop/infer", tensor(dtype, count, items)
    for name, lines in {
        "9,000 lines": b'{"text":"%s"}\n' % (b"abc " * 70) * 9_000,
        "90,000 lines": b'{"text":"%s"}\n' % (b"abc " * 7) * 90_000,
        "9,000 broken lines": b"[[[[\n" * 9_000,
        "a line of one text": b'{"text":"%s"}\n' % (b"abc " * 1_000_000),
        "a line of lists": b'{"text":[%s]}\n' % filled(b"[],"),
    }.items():
        yield name, "/v1/bulk/classify?model=noop", lines
    documents = repeated(b'{"text":"abc def ghi","x":{"a":1}},', 90_000)
    yield "90,000 documents", "/v1/rerank", b'{"model":"noop","query":"a","documents":[%s]}' % documents
    yield "tokens", "/v1/embeddings", b'{"model":"noop","input":[%s]}' % filled(b"[1234,12],")


def filled(unit: bytes) -> bytes:
    return repeated(unit, BYTES // len(unit))


def repeated(unit: bytes, times: int) -> bytes:
    return (unit * times)[:-1]


def tensor(dtype: bytes, count: int, items: bytes) -> bytes:
    return b'{"inputs":[{"name":"TEXT","datatype":"%s","shape":[%d,1],"data":[%s]}]}' % (dtype, count, items)


async def main() -> None:
    folder = Path(tempfile.mkdtemp(prefix="conch-holding-"))
    (key, digest), pulse = new_key("bench", "bench"), folder / "pulse"
    (folder / "routes.yaml").write_text(ROUTES)
    (folder / "tenants.yaml").write_text(TENANTS.format(wide=digest, narrow="0" * 64))
    home = Path(os.environ.get("CONCH_HOME", ".conch")).resolve()
    listen, admin = map(str, Address.several_free(2))
    with Watchdog() as watchdog:
        triton = await Triton.start(install(home), [Path("tests/repository").resolve()], folder, watchdog)
        redis = await Redis.start(folder, watchdog)
        environment = serving(folder, listen, admin, triton, redis)
        async with process(__file__, str(pulse), environment=environment, log=folder / "gateway.log"):
            await ready(listen)
            for name, path, body in bodies():
                told = pulse.stat().st_size if pulse.exists() else 0
                media = "ndjson" if "bulk" in path else "json"
                request = post(path, key, body).replace(b"/json", b"/%s" % media.encode())
                await ask(listen, request)
                print(f"{name:<30}{len(body) / 1e6:>6.2f} MB{longest(pulse.read_text()[told:]):>8.1f} ms")
        await triton.peer.kill()
        await redis.peer.stop()


async def ask(address: str, request: bytes) -> None:
    host, _, port = address.rpartition(":")
    for _ in range(POSTS):
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(request.replace(b"\r\n", b"\r\nConnection: close\r\n", 1))
        await reader.read()
        writer.close()


def longest(told: str) -> float:
    """In ms; 0 where no turn took longer than a large body is given at once."""
    return max(map(float, told.split()), default=0.0)


class Pulsing(House):
    """Beats in each turn of the event loop, and writes down how many ms of CPU a long one took."""

    @classmethod
    def build(cls, settings: Settings) -> House:
        house = super().build(settings)
        house.watches["pulse"] = beat
        return house


async def beat() -> None:
    with Path(sys.argv[1]).open("a", buffering=1) as told:  # noqa: ASYNC230
        before = time.thread_time()
        while True:
            await asyncio.sleep(0)
            held = time.thread_time() - before
            if held > LONG:
                told.write(f"{held * 1000:.2f}\n")
            before = time.thread_time()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        server.House = Pulsing  # type: ignore[attr-defined]
        server.serve(Settings())
    else:
        asyncio.run(main())
