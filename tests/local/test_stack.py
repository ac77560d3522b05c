"""`conch up`, as people run it: a process of its own, with a terminal or without, ended in every way."""

import asyncio
import json
import os
import signal
import socket
import stat
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml

from app.local.address import Address
from app.local.trouble import Exit
from app.tenancy.key import digest
from tests.local.up import Up
from tests.peers import ROOT, eventually

Begin = Callable[..., Awaitable[Up]]


@pytest_asyncio.fixture(loop_scope="session")
async def begin(tmp_path: Path) -> AsyncIterator[Begin]:
    async with AsyncExitStack() as stack:

        async def begin(home: str = "home", **how: Any) -> Up:
            up = await Up.begin(tmp_path / home, **how)
            stack.push_async_callback(up.put_away)
            return up

        yield begin


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def running(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Up]:
    """Every test leaves it well. It ends as when its terminal is closed, and leaves nothing."""
    up = await Up.begin(tmp_path_factory.mktemp("running") / "home")
    try:
        yield await up.ready()
        await ended_by(signal.SIGHUP, up)
    finally:
        await up.put_away()


async def test_up_prints_all_that_a_newcomer_needs_and_the_curl_line_works(running: Up) -> None:
    up = running
    key = (up.home / "demo-key").read_text().strip()
    assert stat.S_IMODE((up.home / "demo-key").stat().st_mode) == 0o600
    for needed in (up.listen.url, f"{up.listen.url}/docs", key, f"{up.admin.url}/metrics"):
        assert needed in up.said
    curl = up.line_after("Try it in another terminal:")
    answer = await pasted(curl)
    shown = up.line_after(f"  {curl}")
    assert [result["labels"] for result in json.loads(answer)["results"]] == [
        result["labels"] for result in json.loads(shown)["results"]
    ]
    assert json.loads(answer)["model"] == "sentiment"


async def test_the_real_models_answer_the_first_request(stack: Up) -> None:
    answer = json.loads(stack.line_after(f"  {stack.line_after('Try it in another terminal:')}"))
    assert [result["labels"][0]["label"] for result in answer["results"]] == ["positive", "negative"]


async def test_ctrl_c_stops_all_of_it_and_leaves_nothing(begin: Begin) -> None:
    await ended_by(signal.SIGINT, await (await begin()).ready())


async def ended_by(number: signal.Signals, up: Up) -> None:
    assert len(up.leftovers()) > 3
    up.process.send_signal(number)
    assert await up.end() == Exit.STOPPED
    assert "All stopped." in up.said
    assert up.leftovers() == []


async def test_a_signal_while_it_starts_stops_all_of_it_too(begin: Begin) -> None:
    up = await begin()
    await up.says("triton   starting")
    up.process.send_signal(signal.SIGINT)
    assert await up.end() == Exit.INTERRUPTED
    assert up.leftovers() == []


async def test_even_kill_9_leaves_nothing(begin: Begin) -> None:
    up = await (await begin()).ready()
    up.process.kill()
    await up.process.wait()
    await eventually(lambda: up.leftovers() == [])


async def test_the_second_run_keeps_the_key_and_what_was_edited(begin: Begin) -> None:
    first = await begin()
    await first.says("triton   starting")
    key, tenants = (first.home / "demo-key").read_text(), first.home / "tenants.yaml"
    first.process.terminate()
    await first.end()
    edited = yaml.safe_load(tenants.read_text())
    assert edited["tenants"]["demo"]["keys"][0]["sha256"] == digest(key.strip().encode()).hex()
    tenants.write_text(f"# edited\n{tenants.read_text()}")
    second = await begin()
    await second.says("triton   starting")
    assert (second.home / "demo-key").read_text() == key
    assert tenants.read_text().startswith("# edited")


@pytest.mark.parametrize("which", ["CONCH_LISTEN", "CONCH_ADMIN_LISTEN"])
async def test_a_taken_port_is_said_before_anything_starts(begin: Begin, which: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        taken = Address("127.0.0.1", server.getsockname()[1])
        up = await (begin(listen=taken) if which == "CONCH_LISTEN" else begin(admin=taken))
        assert await up.end() == Exit.TAKEN
    assert f"{taken} is taken, by " in up.said
    assert f"(pid {os.getpid()})" in up.said
    assert f"{which}=127.0.0.1:" in up.said
    assert "starting" not in up.said


async def test_two_run_side_by_side_in_two_homes_but_not_in_one(begin: Begin, running: Up) -> None:
    one = await (await begin()).ready()
    third = await begin()
    assert await third.end() == Exit.TAKEN
    assert f"already runs in {one.home} (pid {one.process.pid})" in third.said
    await ended_by(signal.SIGTERM, one)
    assert b'"sentiment"' in await pasted(running.line_after("Try it in another terminal:"))


async def test_a_killed_gateway_is_started_again(running: Up) -> None:
    said = len(running.said)
    os.kill(running.gateway(), signal.SIGKILL)
    await running.says("gateway  ended (signal SIGKILL)")
    await running.says("gateway  ready in", after=said)
    await pasted(f"curl -sS {running.listen.url}/readyz")


async def pasted(line: str) -> bytes:
    """What it prints, in a shell that has a stand-in where there is no curl."""
    path = f"{os.environ['PATH']}:{ROOT / 'tests' / 'standins'}"
    shell = await asyncio.create_subprocess_shell(line, stdout=PIPE, env={**os.environ, "PATH": path})
    out, _ = await shell.communicate()
    assert shell.returncode == 0
    return out
