"""The gateway's image, built from the Dockerfile as it is, and run as it should be."""

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.deploy.engine import Engine

pytestmark = pytest.mark.deploy

HARDENED = (
    *("--read-only", "--tmpfs=/tmp:size=16m", "--cap-drop=ALL", "--security-opt=no-new-privileges"),
    *("--memory=512m", "--cpus=2", "--pids-limit=128"),
)


@pytest.fixture(scope="module")
def container(engine: Engine, image: str) -> Iterator[str]:
    name = "conch-test-gateway"
    engine.podman("run", "--detach", f"--name={name}", *HARDENED, image)
    yield name
    engine.podman("rm", "--force", name)


def inside(engine: Engine, container: str, code: str) -> Any:
    return json.loads(engine.podman("exec", container, "python", "-c", f"import json; print(json.dumps({code}))"))


def test_it_says_who_runs_what_and_how_to_see_that_it_lives(engine: Engine, image: str) -> None:
    inspected = json.loads(engine.podman("image", "inspect", image))[0]
    told = inspected["Config"]
    assert told["User"] == "10001:10001"
    assert (told["Entrypoint"], told["Cmd"]) == (["conch"], ["serve"])
    assert inspected["Healthcheck"]["Test"][:2] == ["CMD", "python"]


def test_it_has_at_most_250_megabytes(engine: Engine, image: str) -> None:
    size = int(engine.podman("image", "inspect", "--format={{.Size}}", image))
    assert size <= 250e6


def test_nothing_in_it_installs_or_compiles_or_raises_privileges(engine: Engine, image: str) -> None:
    shell = "command -v pip gcc cc make strip; find / -xdev -type f -perm /6000 2>/dev/null; python -c 'import pip' 2>&1"
    found = engine.podman("run", "--rm", "--entrypoint=/bin/sh", image, "-c", f"{shell}; true").splitlines()
    assert found[-1] == "ModuleNotFoundError: No module named 'pip'"
    assert [line for line in found if line.startswith("/")] == []


def test_it_runs_with_nothing_to_write_to_and_no_privilege(engine: Engine, container: str) -> None:
    status = inside(engine, container, "dict(l.split(':\\t', 1) for l in open('/proc/1/status').read().splitlines())")
    assert int(status["CapEff"], 16) == int(status["CapPrm"], 16) == 0
    assert status["NoNewPrivs"] == "1"
    assert status["Uid"].split() == ["10001"] * 4
    assert inside(engine, container, "__import__('os').access('/opt/conch', 2)") is False


def test_it_is_healthy_before_any_triton_is_there(engine: Engine, container: str) -> None:
    deadline = time.monotonic() + 60
    while "listens at" not in engine.podman("logs", container) and time.monotonic() < deadline:
        time.sleep(0.2)
    engine.podman("healthcheck", "run", container)


def test_a_start_compiles_nothing(engine: Engine, container: str) -> None:
    """What can't be written is compiled anew by every start."""
    code = """[m.__file__ for m in list(__import__('sys').modules.values())
        if '/opt/conch/' in (getattr(m, '__file__', None) or '') and m.__file__.endswith('.py')
        and not __import__('os').path.exists(m.__cached__)]"""
    assert inside(engine, container, f"(__import__('app.server'), {code})[1]") == []


def test_sigterm_ends_it_well(engine: Engine, container: str) -> None:
    began = time.monotonic()
    engine.podman("stop", "--time=20", container)
    assert time.monotonic() - began < 15
    state = json.loads(engine.podman("inspect", container))[0]["State"]
    assert (state["ExitCode"], state["OOMKilled"]) == (0, False)
