"""Redis slow or gone: limits go on in the process, and every answer says so."""

import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path

from app.local.address import Address
from tests.fakes.front import fronted, tls_server
from tests.fakes.triton import FakeTriton
from tests.gateway.problems import CANARY, assert_problem
from tests.gateway.process import RunningGateway
from tests.peers import Redis, Triton, eventually
from tests.triton.certificates import Authority

Start = Callable[..., Awaitable[RunningGateway]]


async def is_degraded(gateway: RunningGateway) -> bool:
    answer = await gateway.classify(CANARY, tenant="roomy")
    assert answer.status_code == 200
    assert "ratelimit" in answer.headers
    return "conch-limiter: degraded" in [": ".join(field) for field in answer.headers.items()]


async def until(gateway: RunningGateway, *, degraded: bool) -> None:
    """Every answer on the way is a success."""
    for _ in range(2000):
        if await is_degraded(gateway) is degraded:
            return
    raise AssertionError(f"degraded never became {degraded}")


async def test_answers_go_on_while_redis_is_silent_or_dead_and_are_exact_again_afterwards(
    start_redis: Callable[[], Awaitable[Redis]], start_gateway: Start, small_triton: Triton
) -> None:
    redis = await start_redis()
    gateway = await start_gateway(TRITON=small_triton.grpc, REDIS_URL=redis.url)
    assert not await is_degraded(gateway)

    redis.peer.pause()
    await until(gateway, degraded=True)
    closed = await gateway.classify(CANARY, tenant="exact")
    assert_problem(closed, 503, "unavailable")
    assert (closed.headers["conch-limiter"], closed.headers["retry-after"]) == ("degraded", "1")
    assert await gateway.count("conch_limiter_decisions_total", decision="unavailable", mode="local") == 1
    while (await gateway.status())["limiter"] == "exact":  # a few late answers in a row, until Redis is not asked any more
        assert await is_degraded(gateway)
    redis.peer.resume()
    await until(gateway, degraded=False)

    await redis.peer.kill()
    await until(gateway, degraded=True)
    await redis.peer.start()
    await until(gateway, degraded=False)
    assert (await gateway.classify(CANARY, tenant="exact")).status_code == 200

    said = [line for line in gateway.log().splitlines() if "limits are" in line]
    assert ["degraded" in line for line in said] == [False, True, False, True, False], said


async def test_a_gateway_starts_without_redis_and_finds_it_when_it_comes(
    start_redis: Callable[[], Awaitable[Redis]], start_gateway: Start, small_triton: Triton
) -> None:
    redis = await start_redis()
    await redis.peer.stop()
    gateway = await start_gateway(TRITON=small_triton.grpc, REDIS_URL=redis.url)
    assert await is_degraded(gateway)
    refused = await gateway.classify(CANARY, tenant="tight")
    while refused.status_code == 200:
        refused = await gateway.classify(CANARY, tenant="tight")
    assert_problem(refused, 429, "rate_limited")
    assert refused.headers["conch-limiter"] == "degraded"
    await redis.peer.start()
    await until(gateway, degraded=False)
    log = gateway.peer.log
    await eventually(lambda: '"limits are exact' in log.read_text())


async def test_a_redis_behind_tls_is_asked_once_its_authority_is_the_right_one_and_until_then_the_log_says_why_not(
    redis: Redis, start_gateway: Start, stage: FakeTriton, staged_routes: Path, tmp_path: Path
) -> None:
    authority, stranger = Authority.found(tmp_path), Authority.found(tmp_path, "stranger")
    certificate, ours, trusted = authority.issue("127.0.0.1"), authority.issue("conch"), tmp_path / "trusted.pem"
    shutil.copy(stranger.file, trusted)
    async with fronted(Address.parse(redis.address), tls_server(certificate, clients=authority.file)) as door:
        url = f"rediss://{door.address}?ssl_ca_certs={trusted}&ssl_certfile={ours[0]}&ssl_keyfile={ours[1]}"
        gateway = await start_gateway(TRITON=stage.address, ROUTES_FILE=str(staged_routes), REDIS_URL=url)
        said = f"Redis at {door.address} can't decide: the connection did not open: its certificate is not trusted: "
        assert gateway.log().count(f"limits are degraded, {said}") == 1
        answer = await gateway.classify(CANARY, tenant="roomy", model="words")
        assert (answer.status_code, answer.headers["conch-limiter"]) == (200, "degraded")
        assert (await gateway.status())["limiter_trouble"].startswith(said)
        shutil.copy(authority.file, trusted)
        await eventually(lambda: "limits are exact" in gateway.log())
        assert (await gateway.status())["limiter_trouble"] == ""
        answer = await gateway.classify(CANARY, tenant="roomy", model="words")
        assert (answer.status_code, answer.headers.get("conch-limiter")) == (200, None)
        await gateway.peer.stop()
