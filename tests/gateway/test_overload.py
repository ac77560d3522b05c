"""More load than the model can carry: who is served, and how much of the capacity is kept for it."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from time import monotonic

import grpc.aio
from tritonclient.grpc import service_pb2 as pb

from tests.fakes.triton import REMARKS, Behaviour, FakeTriton, model
from tests.gateway.process import RunningGateway
from tests.peers import Redis

INSTANCES, SECONDS = 4, 0.2  # so slow that it is the model, and not this machine, that carries no more
ROUTES = """
routes:
  slow: {task: classify, targets: [{ensemble: slow}], labels: [a, b], concurrency: 4, timeout_ms: {default: 2000, max: 2000}}
"""


def instances(fake: FakeTriton) -> Behaviour:
    """A model that takes its time, and does so many things at once; what has no instance waits for one, as in Triton."""
    free = asyncio.Semaphore(INSTANCES)

    async def behave(request: pb.ModelInferRequest, context: grpc.aio.ServicerContext) -> pb.ModelInferResponse:
        async with free:
            await asyncio.sleep(SECONDS)
            return fake.well_formed(request)

    return behave


async def test_at_three_times_its_capacity_the_model_goes_on_at_full_speed_and_the_higher_plan_is_served(
    start_gateway: Callable[..., Awaitable[RunningGateway]], redis: Redis, tmp_path: Path
) -> None:
    (tmp_path / "routes.yaml").write_text(ROUTES)
    async with FakeTriton.serving({"slow": model("slow", {"SCORES": ("FP32", (2,)), **REMARKS})}) as fake:
        fake.behaviours["slow"] = instances(fake)
        settings = {"TRITON": fake.address, "REDIS_URL": redis.url, "ROUTES_FILE": str(tmp_path / "routes.yaml")}
        gateway = await start_gateway(**settings, ready="/livez")
        await gateway.classify("warm", model="slow")

        kept = 0.0
        for _ in range(3):  # a busy machine only takes of it
            alone = await closed_loop(gateway, callers=INSTANCES, seconds=1.6)
            high, low = await asyncio.gather(
                open_loop(gateway, "first", per_second=0.3 * alone, seconds=4),
                open_loop(gateway, "open", per_second=2.7 * alone, seconds=4),
            )
            assert set(high) == {200}, "the plan of higher priority needs less than the capacity, so that none of it is refused"
            assert set(low) == {200, 503}, "the other one is shed, and gets what is left"
            kept = max(kept, (high + low).count(200) / 4 / alone)
            if kept >= 0.9:
                break
    assert kept >= 0.9


async def closed_loop(gateway: RunningGateway, *, callers: int, seconds: float) -> float:
    """Answers per second, when each caller asks again as soon as it is answered."""
    until, answers = monotonic() + seconds, 0

    async def call() -> None:
        nonlocal answers
        while monotonic() < until:
            assert (await gateway.classify("alone", model="slow")).status_code == 200
            answers += 1

    await asyncio.gather(*(call() for _ in range(callers)))
    return answers / seconds


async def open_loop(gateway: RunningGateway, tenant: str, *, per_second: float, seconds: float) -> list[int]:
    """Statuses, when callers come at a steady rate, whatever becomes of those before them."""
    started, calls = monotonic(), []
    for at in range(int(per_second * seconds)):
        await asyncio.sleep(max(0, started + at / per_second - monotonic()))
        calls.append(asyncio.create_task(gateway.classify("pressed", model="slow", tenant=tenant)))
    answers = await asyncio.gather(*calls)
    assert all(int(answer.headers["retry-after"]) >= 1 for answer in answers if answer.status_code == 503)
    return [answer.status_code for answer in answers]
