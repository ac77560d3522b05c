"""The real peers that the other tests rely on."""

from collections.abc import Awaitable, Callable
from pathlib import Path

import httpx
import numpy as np
import pytest
from tritonclient.grpc.aio import InferenceServerClient, InferInput
from tritonclient.utils import InferenceServerException

from app.local.address import Address
from app.local.redis import answers
from app.local.watchdog import SHARED_MEMORY, is_alive
from tests.peers import Redis, Triton

TINY = Path(__file__).parent / "repository"


async def shout(grpc: str, text: bytes) -> bytes:
    tensor = InferInput("TEXT", [1, 1], "BYTES")
    tensor.set_data_from_numpy(np.array([[text]], dtype=object))
    async with InferenceServerClient(grpc) as client:
        answer = (await client.infer("shout", [tensor], client_timeout=5)).as_numpy("SHOUT")
    assert answer is not None
    return bytes(answer[0, 0])


async def test_a_real_triton_answers_on_all_three_ports(start_triton: Callable[..., Awaitable[Triton]]) -> None:
    triton = await start_triton(TINY)
    assert await shout(triton.grpc, b"hello") == b"HELLO"
    async with httpx.AsyncClient(trust_env=False) as client:
        assert (await client.get(f"http://{triton.http}/v2")).json()["version"] == "2.51.0"
        metrics = (await client.get(f"http://{triton.metrics}/metrics")).text
    assert 'nv_inference_request_success{model="shout",version="1"} 1' in metrics


async def test_a_triton_can_be_killed_and_started_again_at_the_same_ports(
    start_triton: Callable[..., Awaitable[Triton]],
) -> None:
    triton = await start_triton(TINY)
    await triton.peer.kill()
    with pytest.raises(InferenceServerException):
        await shout(triton.grpc, b"hello")
    await triton.peer.start()
    assert await shout(triton.grpc, b"again") == b"AGAIN"


async def test_a_killed_triton_leaves_no_stub_and_no_shared_memory(start_triton: Callable[..., Awaitable[Triton]]) -> None:
    triton = await start_triton(TINY)
    group, prefix = triton.peer.pid, triton.peer.part.shared_memory
    assert list(SHARED_MEMORY.glob(f"{prefix}*"))
    await triton.peer.kill()
    assert not list(SHARED_MEMORY.glob(f"{prefix}*"))
    assert not is_alive(group)


async def test_a_redis_of_its_own_can_be_paused_and_resumed(start_redis: Callable[[], Awaitable[Redis]]) -> None:
    redis = await start_redis()
    address = Address.parse(redis.address)
    assert await answers(address)
    redis.peer.pause()
    assert not await answers(address)
    redis.peer.resume()
    assert await answers(address)
