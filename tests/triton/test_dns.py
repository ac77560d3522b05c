"""Names by the system's own resolver, and by DNS."""

import asyncio
import shutil
import sys
from asyncio.subprocess import PIPE, STDOUT

import pytest

from tests.gateway.process import ROOT

OWN_NETWORK = ("unshare", "--user", "--map-root-user", "--mount", "--net")


async def test_endpoints_follow_their_name_and_stay_while_it_can_not_be_looked_up() -> None:
    code, words = await run(*OWN_NETWORK, "true") if shutil.which("unshare") else (1, "there is no unshare")
    if code:
        pytest.skip(f"nobody gets a network of his own here: {words.strip()}")
    code, words = await run(*OWN_NETWORK, sys.executable, "-m", "tests.triton.own_network")
    assert words.endswith("all as it should be\n"), words
    assert code == 0


async def run(*command: str) -> tuple[int | None, str]:
    process = await asyncio.create_subprocess_exec(*command, cwd=ROOT, stdout=PIPE, stderr=STDOUT)
    words, _ = await process.communicate()
    return process.returncode, words.decode()
