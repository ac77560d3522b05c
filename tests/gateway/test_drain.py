"""The end of a gateway: nobody who was being served is dropped."""

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable

import httpx

from tests.gateway.process import RunningGateway
from tests.peers import Redis, Triton, eventually

StartGateway = Callable[..., Awaitable[RunningGateway]]


async def test_sigterm_makes_it_unready_at_once_and_ends_it_when_all_that_runs_is_answered(
    start_gateway: StartGateway, small_triton: Triton, redis: Redis
) -> None:
    gateway = await start_gateway(TRITON=small_triton.grpc, REDIS_URL=redis.url, DRAIN_DELAY_SECONDS="1", anew=True)
    ended = asyncio.create_task(gateway.peer.ended())
    slow = asyncio.create_task(gateway.classify("2", model="sleepy"))
    await eventually_running(gateway)

    os.kill(gateway.peer.pid, signal.SIGTERM)
    await eventually_unready(gateway)
    meanwhile = await gateway.classify("still served")
    assert (meanwhile.status_code, meanwhile.headers["connection"]) == (200, "close")

    answer = await slow
    assert answer.status_code == 200
    assert await ended == "exit status 0"


async def test_a_second_signal_ends_it_now(start_gateway: StartGateway, small_triton: Triton, redis: Redis) -> None:
    gateway = await start_gateway(TRITON=small_triton.grpc, REDIS_URL=redis.url, DRAIN_DELAY_SECONDS="30")
    ended = asyncio.create_task(gateway.peer.ended())
    os.kill(gateway.peer.pid, signal.SIGTERM)
    await eventually_unready(gateway)
    os.kill(gateway.peer.pid, signal.SIGTERM)
    async with asyncio.timeout(10):
        assert await ended == "exit status 0"


async def test_a_rolling_restart_of_two_gateways_fails_no_request(
    start_gateway: StartGateway, small_triton: Triton, redis: Redis
) -> None:
    """As behind a load balancer that looks at /readyz ten times a second and drops what is not ready."""
    settings = {"TRITON": small_triton.grpc, "REDIS_URL": redis.url, "DRAIN_DELAY_SECONDS": "1.5"}
    gateways = [await start_gateway(**settings), await start_gateway(**settings)]
    ready = list(gateways)
    over = asyncio.Event()
    statuses: list[int] = []

    async def balance() -> None:
        while not over.is_set():
            there = list(gateways)  # one may leave or come while we look
            looked = await asyncio.gather(*map(is_ready, there))
            ready[:] = [gateway for gateway, well in zip(there, looked, strict=True) if well]
            await asyncio.sleep(0.1)

    async def call() -> None:
        while not over.is_set():
            statuses.append((await ready[len(statuses) % len(ready)].classify("on and on")).status_code)
            await asyncio.sleep(0.03)

    balancer = asyncio.create_task(balance())
    callers = [asyncio.create_task(call()) for _ in range(8)]
    for gateway in list(gateways):
        leaving = asyncio.create_task(gateway.peer.ended())
        os.kill(gateway.peer.pid, signal.SIGTERM)
        assert await leaving == "exit status 0"
        gateways.remove(gateway)
        gateways.append(await start_gateway(**settings))
        await eventually(lambda: len(ready) == 2)
    over.set()
    await asyncio.gather(balancer, *callers)
    assert len(statuses) > 50
    assert set(statuses) == {200}


async def is_ready(gateway: RunningGateway) -> bool:
    try:
        return (await gateway.client.get("/readyz")).is_success
    except httpx.HTTPError:
        return False


async def eventually_unready(gateway: RunningGateway) -> None:
    async with asyncio.timeout(1):
        while await is_ready(gateway):
            await asyncio.sleep(0.01)


async def eventually_running(gateway: RunningGateway) -> None:
    async with asyncio.timeout(5):
        while not await gateway.count("conch_requests_in_flight"):
            await asyncio.sleep(0.01)
