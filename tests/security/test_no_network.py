"""A gateway asks nobody but its peers, neither when it starts nor when it answers."""

import shutil
import sys

import pytest

from tests.triton.test_dns import OWN_NETWORK, run


async def test_a_gateway_asks_nobody_but_its_peers() -> None:
    probe = ("sh", "-c", "ip link add out0 type veth peer name out1")
    code, words = await run(*OWN_NETWORK, *probe) if shutil.which("unshare") else (1, "there is no unshare")
    if code:
        pytest.skip(f"nobody gets a network of his own here: {words.strip()}")
    code, words = await run(*OWN_NETWORK, sys.executable, "-m", "tests.security.own_network")
    assert words.endswith("0 packets wanted to leave\n"), words
    assert code == 0
