"""What a setting takes, and what it refuses before anything starts."""

import subprocess
import sys
from collections.abc import Awaitable, Callable

import pytest
from pydantic import ValidationError

from app.settings import Settings, strangers
from tests.fakes.triton import FakeTriton
from tests.gateway.process import ROOT, RunningGateway, conch

Start = Callable[..., Awaitable[RunningGateway]]

REDIS = [
    ("redis://h", True),
    ("redis://user:pa%40ss@h:6379/3?ssl_cert_reqs=none", True),
    ("rediss://[::1]:6379", True),
    ("unix:///run/redis.sock?db=1", True),
    ("redis+sentinel://h1,h2:26379/mymaster/0", True),
    ("rediss+sentinel://:p@h1:1/m?sentinel_password=x", True),
    ("redis+cluster://h1:1,h2:2,[::1]:3", True),
    ("rediss+cluster://h1", True),
    ("http://h", False),
    ("h:6379", False),
    ("redis+other://h", False),
    ("redis://h:0", False),
    ("redis://h:port", False),
    ("redis+cluster://h1:1,h2:x", False),
    ("", False),
]


def is_taken(**settings: object) -> bool:
    try:
        Settings(**settings)  # type: ignore[arg-type]
    except ValidationError:
        return False
    return True


@pytest.mark.parametrize(("url", "taken"), REDIS)
def test_where_redis_is(url: str, taken: bool) -> None:
    assert is_taken(redis_url=url) is taken


@pytest.mark.parametrize(
    ("replicas", "taken"), [("auto", True), ("3", True), ("1", True), ("0", False), ("-1", False), ("many", False)]
)
def test_how_many_replicas_there_are(replicas: str, taken: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONCH_REPLICAS", replicas)
    assert is_taken() is taken
    if replicas.isdecimal() and taken:
        assert Settings().replicas == int(replicas)


STRANGERS = [
    ("CONCH_LISTEN", None),
    ("conch_listen", None),
    ("CONCH_HOME", None),
    ("PATH", None),
    ("CONCH_REDIS_UL", "CONCH_REDIS_URL"),
    ("conch_Tenant_File", "CONCH_TENANTS_FILE"),
    ("CONCH_TRITON_TLS_CA", "CONCH_TRITON_TLS_CA_FILE"),
    ("CONCH_SERVICE_HOST", None),
    ("CONCH_SERVICE_PORT_HTTP", None),
    ("CONCH_PORT", None),
    ("CONCH_PORT_8080_TCP_ADDR", None),
    ("CONCH_REDIS_PORT_6379_TCP", None),
]


@pytest.mark.parametrize(("variable", "nearest"), STRANGERS)
def test_a_variable_that_looks_like_a_setting_and_is_none_is_told_with_the_nearest(variable: str, nearest: str | None) -> None:
    said = list(strangers([variable]))
    assert len(said) == (nearest is not None)
    assert all(variable in sentence and sentence.endswith(f" {nearest}") for sentence in said)


async def test_a_misspelt_setting_is_told_when_a_gateway_starts_and_by_conch_check(
    start_gateway: Start, stage: FakeTriton
) -> None:
    gateway = await start_gateway(TRITON=stage.address, REDIS_URI="redis://:c4nary@elsewhere", ready="/livez")
    sentence = "CONCH_REDIS_URI is not a setting, and has no effect; the nearest one is CONCH_REDIS_URL"
    assert gateway.log().count(sentence) == 1
    _, out, err = await conch("check", **gateway.peer.part.environment)
    assert out.count(sentence) == 1
    assert "c4nary" not in gateway.log() + out + err


@pytest.mark.parametrize(
    ("soft", "hard", "taken", "told"),
    [(256, 4096, 1256, ""), (2000, 4096, 2000, ""), (256, 700, 700, "of CONCH_MAX_CONNECTIONS=1000 there is room for 444")],
)
def test_there_is_a_file_for_each_connection_or_a_word_in_the_log(soft: int, hard: int, taken: int, told: str) -> None:
    program = (
        f"import logging, resource; logging.basicConfig(); resource.setrlimit(resource.RLIMIT_NOFILE, ({soft}, {hard}));"
        "from app.server import make_room; make_room(1000); print(resource.getrlimit(resource.RLIMIT_NOFILE))"
    )
    done = subprocess.run((sys.executable, "-c", program), cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == f"({taken}, {hard})\n"
    assert told in done.stderr
    assert bool(done.stderr) is bool(told)
