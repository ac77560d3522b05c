"""A supervisor keeps its parts running, and leaves nothing of them."""

import asyncio
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from app.local.address import Address
from app.local.part import Part
from app.local.redis import answers, redis
from app.local.supervisor import Supervisor
from app.local.triton import Installation, Ports, is_ready, triton
from app.local.trouble import Exit, Trouble
from app.local.watchdog import SHARED_MEMORY, is_alive
from tests.peers import eventually

TINY = Path(__file__).parent / "repository"


class Witness:
    def __init__(self) -> None:
        self.heard: list[tuple[str, str]] = []

    def tell(self, name: str, news: str, *, busy: bool = False) -> None:
        self.heard.append((name, news))

    async def hears(self, name: str, words: str, times: int = 1) -> None:
        await eventually(lambda: sum(name == about and words in news for about, news in self.heard) >= times)


@pytest.fixture
def witness() -> Witness:
    return Witness()


@pytest.fixture
def supervisor(tmp_path: Path, witness: Witness) -> Supervisor:
    return Supervisor(tmp_path / "logs", witness)


def shell(script: str, folder: Path, *, ready: bool, within: float = 30, grace: float = 0.2) -> Part:
    async def is_ready() -> bool:
        return ready

    return Part("shell", ("sh", "-c", script), dict(os.environ), folder, is_ready, within, grace)


async def test_a_killed_part_is_started_again_at_its_address(supervisor: Supervisor, witness: Witness, tmp_path: Path) -> None:
    address = Address.free()
    async with supervisor:
        await supervisor.start(redis(address, tmp_path / "redis"))
        first = supervisor.pid("redis")
        os.kill(first, signal.SIGKILL)
        await witness.hears("redis", "ended (signal SIGKILL), starting again in 0.5 s")
        await witness.hears("redis", "ready in", times=2)
        assert supervisor.pid("redis") != first
        assert await answers(address)


async def test_the_pause_grows_while_a_part_keeps_dying(supervisor: Supervisor, witness: Witness, tmp_path: Path) -> None:
    async with supervisor:
        await supervisor.start(shell("exit 7", tmp_path, ready=True))
        for pause in ("0.5", "1.0"):
            await witness.hears("shell", f"ended (exit status 7), starting again in {pause} s")


async def test_a_part_that_hangs_when_it_is_started_again_is_started_once_more(
    supervisor: Supervisor, witness: Witness, tmp_path: Path
) -> None:
    starts = 0

    async def is_ready() -> bool:
        nonlocal starts
        starts = sum(news == "starting" for _, news in witness.heard)
        return starts != 2

    async with supervisor:
        await supervisor.start(replace(shell("sleep 60", tmp_path, ready=True, within=0.3), is_ready=is_ready))
        os.kill(supervisor.pid("shell"), signal.SIGKILL)
        await witness.hears("shell", "ready in", times=2)
    assert starts == 3


async def test_a_triton_that_lost_a_stub_is_started_again(
    supervisor: Supervisor, witness: Witness, installation: Installation, tmp_path: Path
) -> None:
    ports = Ports.free()
    async with supervisor:
        await supervisor.start(triton(installation, [TINY], ports, tmp_path / "empty"))
        (stub,) = (int(pid) for pid in children(supervisor.pid("triton")))
        os.kill(stub, signal.SIGKILL)
        await witness.hears("triton", "ended (a process of it is gone)")
        await witness.hears("triton", "ready in", times=2)
        assert await is_ready(ports.http)


def children(pid: int) -> list[str]:
    return [child for task in Path(f"/proc/{pid}/task").iterdir() for child in (task / "children").read_text().split()]


async def test_a_part_that_ends_while_it_starts_is_a_trouble_with_its_last_words(
    supervisor: Supervisor, installation: Installation, tmp_path: Path
) -> None:
    with pytest.raises(Trouble) as caught:
        async with supervisor:
            await supervisor.start(triton(installation, [tmp_path / "no-repository"], Ports.free(), tmp_path / "empty"))
    assert "triton ended while it started (exit status 1)" in caught.value.what
    assert "no-repository" in caught.value.what
    assert "triton.log" in caught.value.mend
    assert caught.value.code == Exit.NOT_READY


async def test_a_part_that_crashes_while_it_starts_is_started_once_more(
    supervisor: Supervisor, witness: Witness, tmp_path: Path
) -> None:
    up = tmp_path / "up"

    async def is_ready() -> bool:
        return up.exists()

    crash = "kill -ABRT $$"
    once = shell(f"test -e tried && touch {up} && sleep 60; touch tried; {crash}", tmp_path, ready=False)
    async with supervisor:
        await supervisor.start(replace(once, is_ready=is_ready))
    assert ("shell", "crashed, starting again") in witness.heard
    with pytest.raises(Trouble, match=r"signal SIGABRT"):
        async with supervisor:
            await supervisor.start(shell(crash, tmp_path, ready=False))


async def test_a_part_that_never_gets_ready_is_a_trouble_and_is_stopped(supervisor: Supervisor, tmp_path: Path) -> None:
    with pytest.raises(Trouble, match=r"shell was not ready after 0 s(.|\n)*still at it"):
        async with supervisor:
            await supervisor.start(shell("echo still at it; sleep 60", tmp_path, ready=False, within=0.3))
    assert not is_alive(supervisor.pid("shell"))


@pytest.mark.parametrize(("made", "left"), [("env-b", ["env-a"]), ("env-b env-c", ["env-a", "env-b", "env-c"])])
async def test_the_empty_folder_that_a_part_makes_goes_with_it_unless_it_may_be_another_s(
    supervisor: Supervisor, tmp_path: Path, made: str, left: list[str]
) -> None:
    (tmp_path / "env-a").mkdir()

    async def is_ready() -> bool:
        return (tmp_path / made.split()[-1]).exists()

    part = shell(f"mkdir {made}; sleep 60", tmp_path, ready=False)
    async with supervisor:
        await supervisor.start(replace(part, is_ready=is_ready, litter=tmp_path / "env-"))
    assert sorted(folder.name for folder in tmp_path.glob("env-*")) == left


async def test_parts_are_stopped_in_the_reverse_order(supervisor: Supervisor, witness: Witness, tmp_path: Path) -> None:
    async with supervisor:
        for name in ("first", "second", "third"):
            await supervisor.start(replace(shell("sleep 60", tmp_path, ready=True), name=name))
    assert [name for name, news in witness.heard if news == "stopped"] == ["third", "second", "first"]


async def test_a_part_that_ignores_the_signal_is_killed_with_its_children(supervisor: Supervisor, tmp_path: Path) -> None:
    async with supervisor:
        await supervisor.start(shell('trap "" TERM; sleep 60 & sleep 60; wait', tmp_path, ready=True))
        group = supervisor.pid("shell")
    assert not is_alive(group)


async def test_a_second_signal_need_not_wait_for_a_part_that_takes_its_time(supervisor: Supervisor, tmp_path: Path) -> None:
    async with supervisor:
        await supervisor.start(shell('trap "" TERM; sleep 300 & sleep 300; wait', tmp_path, ready=True, grace=300))
        group = supervisor.pid("shell")
        asyncio.get_running_loop().call_later(0.3, supervisor.kill)
    assert not is_alive(group)


async def test_each_start_keeps_the_log_of_the_one_before(tmp_path: Path, witness: Witness) -> None:
    for words in ("one", "two"):
        async with Supervisor(tmp_path / "logs", witness) as supervisor:
            await supervisor.start(shell(f"echo {words}; exec sleep 60", tmp_path, ready=True))
            await eventually(lambda: said(tmp_path / "logs" / "shell.log") != "")
    assert (tmp_path / "logs" / "shell.previous.log").read_text() == "one\n"
    assert (tmp_path / "logs" / "shell.log").read_text() == "two\n"


def said(log: Path) -> str:
    return log.read_text() if log.exists() else ""


HOLD = """
import asyncio, sys
from pathlib import Path
from app.local.address import Address
from app.local.board import Board
from app.local.redis import redis
from app.local.supervisor import Supervisor
from app.local.triton import Ports, install, triton

async def hold(home: Path, repository: Path) -> None:
    async with Supervisor(home / "logs", Board(sys.stderr)) as supervisor:
        ports, address = Ports.free(), Address.free()
        server = triton(install(home), [repository], ports, home / "empty")
        await supervisor.start(redis(address, home / "redis"), server)
        print(supervisor.pid("redis"), supervisor.pid("triton"), server.shared_memory, flush=True)
        await asyncio.Event().wait()

asyncio.run(hold(Path(sys.argv[1]), Path(sys.argv[2])))
"""


async def test_even_a_killed_supervisor_leaves_no_process_and_no_shared_memory(tmp_path: Path) -> None:
    command = (sys.executable, "-c", HOLD, str(tmp_path), str(TINY))
    holder = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE, cwd=TINY.parents[2])
    assert holder.stdout is not None
    redis_group, triton_group, shared_memory = (await holder.stdout.readline()).decode().split()
    groups = (int(redis_group), int(triton_group))
    assert all(map(is_alive, groups))
    assert list(SHARED_MEMORY.glob(f"{shared_memory}*"))

    holder.kill()
    await holder.communicate()

    await eventually(lambda: not any(map(is_alive, groups)) and not list(SHARED_MEMORY.glob(f"{shared_memory}*")))
