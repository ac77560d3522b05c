"""`conch up`, as people run it: a process of its own, with a terminal or without, ended in every way."""

import asyncio
import json
import os
import signal
import socket
import stat
import subprocess
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml

from app.local.address import Address
from app.local.trouble import Exit
from app.local.watchdog import SHARED_MEMORY
from app.tenancy.key import digest
from tests.conftest import ROOT
from tests.peers import eventually

UP = """
import sys
from pathlib import Path
from app.local.stack import Options, up

home, listen, admin, models, routes = sys.argv[1:]
sys.exit(up(Options(home=Path(home), listen=listen, admin_listen=admin, models=Path(models), routes=Path(routes))))
"""


@dataclass(slots=True)
class Up:
    process: Process
    home: Path
    listen: Address
    admin: Address
    said: str = ""

    @classmethod
    async def begin(
        cls, home: Path, listen: Address | None = None, admin: Address | None = None, models: Path | None = None
    ) -> "Up":
        """With `models` and the routes of the project, or with one tiny ensemble, which starts fast."""
        listen, admin = listen or Address.free(), admin or Address.free()
        routes = ROOT / "config" / "routes.yaml" if models else ROOT / "tests" / "local" / "routes.yaml"
        command = (sys.executable, "-c", UP, *map(str, (home, listen, admin, models or noop_alone(home), routes)))
        process = await asyncio.create_subprocess_exec(*command, stdout=PIPE, stderr=subprocess.STDOUT, cwd=ROOT)
        return cls(process, home, listen, admin)

    async def says(self, words: str) -> None:
        assert self.process.stdout is not None
        async with asyncio.timeout(120):
            while words not in self.said:
                line = await self.process.stdout.readline()
                assert line, f"it ended without saying {words!r}:\n{self.said}"
                self.said += line.decode()

    async def ready(self) -> "Up":
        await self.says("Ctrl-C stops all of it.")
        return self

    async def end(self) -> int:
        """Its exit code, once it has said all that it has to say."""
        rest, _ = await self.process.communicate()
        self.said += rest.decode()
        assert self.process.returncode is not None
        return self.process.returncode

    def line_after(self, words: str) -> str:
        lines = self.said.splitlines()
        return next(line.strip() for line in lines[lines.index(words) + 1 :] if line.strip())

    def leftovers(self) -> list[str]:
        """Processes that run from its home or speak of it, and names in shared memory of its own."""
        lines = [
            line.read_bytes().replace(b"\0", b" ").decode() for line in Path("/proc").glob("[0-9]*/cmdline") if exists(line)
        ]
        regions = [region.name for region in SHARED_MEMORY.glob(f"conch-{self.process.pid}-*")]
        ports = [str(address) for address in (self.listen, self.admin) if not address.is_free()]
        return [line for line in lines if str(self.home) in line] + regions + ports


def noop_alone(home: Path) -> Path:
    repository = home.parent / "repository"
    repository.mkdir(parents=True, exist_ok=True)
    for model in ("noop", "noop-tokenizer", "noop-head"):
        if not (repository / model).exists():
            (repository / model).symlink_to(ROOT / "tests" / "repository" / model)
    return repository


def exists(command_line: Path) -> bool:
    try:
        return bool(command_line.read_bytes())
    except OSError:
        return False


@pytest_asyncio.fixture(loop_scope="session")
async def begin(tmp_path: Path) -> AsyncIterator[Callable[..., Awaitable[Up]]]:
    async with AsyncExitStack() as stack:

        async def begin(home: str = "home", **how: Any) -> Up:
            up = await Up.begin(tmp_path / home, **how)
            stack.push_async_callback(put_away, up)
            return up

        yield begin


async def put_away(up: Up) -> None:
    if up.process.returncode is None:
        up.process.terminate()
        await up.end()


async def test_up_prints_all_that_a_newcomer_needs_and_the_curl_line_works(begin: Callable[..., Awaitable[Up]]) -> None:
    up = await (await begin()).ready()
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


async def test_the_real_models_answer_the_first_request(begin: Callable[..., Awaitable[Up]], models: Path) -> None:
    up = await (await begin(models=models)).ready()
    answer = json.loads(up.line_after(f"  {up.line_after('Try it in another terminal:')}"))
    assert [result["labels"][0]["label"] for result in answer["results"]] == ["positive", "negative"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
async def test_a_signal_stops_all_of_it_and_leaves_nothing(begin: Callable[..., Awaitable[Up]], number: signal.Signals) -> None:
    up = await (await begin()).ready()
    assert len(up.leftovers()) > 3
    up.process.send_signal(number)
    assert await up.end() == Exit.STOPPED
    assert "All stopped." in up.said
    assert up.leftovers() == []


async def test_a_signal_while_it_starts_stops_all_of_it_too(begin: Callable[..., Awaitable[Up]]) -> None:
    up = await begin()
    await up.says("triton   starting")
    up.process.send_signal(signal.SIGINT)
    assert await up.end() == Exit.INTERRUPTED
    assert up.leftovers() == []


async def test_even_kill_9_leaves_nothing(begin: Callable[..., Awaitable[Up]]) -> None:
    up = await (await begin()).ready()
    up.process.kill()
    await up.process.wait()
    await eventually(lambda: up.leftovers() == [])


async def test_the_second_run_keeps_the_key_and_what_was_edited(begin: Callable[..., Awaitable[Up]]) -> None:
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
async def test_a_taken_port_is_said_before_anything_starts(begin: Callable[..., Awaitable[Up]], which: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        taken = Address("127.0.0.1", server.getsockname()[1])
        up = await (begin(listen=taken) if which == "CONCH_LISTEN" else begin(admin=taken))
        assert await up.end() == Exit.TAKEN
    assert f"{taken} is taken, by " in up.said
    assert f"(pid {os.getpid()})" in up.said
    assert f"{which}=127.0.0.1:" in up.said
    assert "starting" not in up.said


async def test_two_run_side_by_side_in_two_homes_but_not_in_one(begin: Callable[..., Awaitable[Up]]) -> None:
    one, other = await begin("one"), await begin("other")
    await one.ready()
    await other.ready()
    third = await begin("one")
    assert await third.end() == Exit.TAKEN
    assert f"already runs in {one.home} (pid {one.process.pid})" in third.said
    one.process.terminate()
    assert await one.end() == Exit.STOPPED
    assert one.leftovers() == []
    assert b'"sentiment"' in await pasted(other.line_after("Try it in another terminal:"))


async def test_a_killed_gateway_is_started_again(begin: Callable[..., Awaitable[Up]]) -> None:
    up = await (await begin()).ready()
    os.kill(gateway_of(up), signal.SIGKILL)
    await up.says("gateway  ended (signal SIGKILL)")
    up.said = ""
    await up.says("gateway  ready in")
    await pasted(f"curl -sS {up.listen.url}/readyz")


async def pasted(line: str) -> bytes:
    """What it prints, in a shell that has a stand-in where there is no curl."""
    path = f"{os.environ['PATH']}:{ROOT / 'tests' / 'standins'}"
    shell = await asyncio.create_subprocess_shell(line, stdout=PIPE, env={**os.environ, "PATH": path})
    out, _ = await shell.communicate()
    assert shell.returncode == 0
    return out


def gateway_of(up: Up) -> int:
    (pid,) = (
        int(child)
        for child in Path(f"/proc/{up.process.pid}/task/{up.process.pid}/children").read_text().split()
        if b"app.cli\0serve" in Path(f"/proc/{child}/cmdline").read_bytes()
    )
    return pid
