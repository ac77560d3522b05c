"""compose.yaml, for real: object storage, publishing, Triton from there, Redis, and the gateway before them."""

import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
import yaml

from app.local.address import Address
from app.local.models.manifest import Manifest
from tests.conftest import ROOT
from tests.deploy import standins
from tests.deploy.engine import Engine
from tests.gateway.tenants import Tenants

pytestmark = pytest.mark.deploy

HERE = ROOT / "tests" / "deploy"
STARTED = ("storage", "publish", "triton", "redis", "gateway")


@dataclass(frozen=True, slots=True)
class Stack:
    engine: Engine
    command: tuple[str, ...]
    variables: dict[str, str]
    url: str
    key: str

    def compose(self, *arguments: str, within: float = 120) -> str:
        return self.engine.run((*self.command, *arguments), within, **self.variables)

    def classify(self) -> httpx.Response:
        body = {"model": "noop", "inputs": ["a text"]}
        headers = {"authorization": f"Bearer {self.key}"}
        return httpx.post(f"{self.url}/v1/classify", json=body, headers=headers, trust_env=False, timeout=10)

    def until(self, *, degraded: bool) -> None:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            answer = self.classify()
            assert answer.status_code == 200, answer.text
            if (answer.headers.get("conch-limiter") == "degraded") is degraded:
                return
            time.sleep(0.1)
        log = self.compose("logs", "--tail=40", "gateway")
        raise AssertionError(f"degraded never became {degraded}\n{log}")


@pytest.fixture(scope="module")
def stack(
    engine: Engine, image: str, triton_image: str, compose: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Stack]:
    folder = tmp_path_factory.mktemp("stack")
    folder.chmod(0o755)  # read by the users of the containers
    for parent in folder.parents[:2]:
        parent.chmod(0o755)
    models = folder / "models"
    for name in ("noop", "noop-head", "noop-tokenizer"):
        shutil.copytree(ROOT / "tests" / "repository" / name, models / name)
    Manifest.of(models, "", {}).write(models)
    routes = yaml.safe_load((ROOT / "tests" / "gateway" / "routes.yaml").read_text())["routes"]
    (folder / "routes.yaml").write_text(yaml.safe_dump({"routes": {"noop": routes["noop"]}}))
    tenants = Tenants.write(folder / "tenants.yaml")
    listen = Address.free()
    standins.services(engine)
    variables = {
        "TEST_IMAGE": image,
        "TEST_TRITON_IMAGE": triton_image,
        "TEST_MODELS": str(models),
        "CONCH_PUBLISHED": str(listen.port),
        "CONCH_SECRETS": str(folder / "secrets"),
    }
    engine.run(("sh", "config/compose/secrets.sh"), 10, **variables)
    command = (str(compose), "--project-name=conch-test", "-f", "compose.yaml", "-f", str(HERE / "standins.yaml"))
    stack = Stack(engine, command, variables, listen.url, tenants.keys["roomy"])
    with engine.serving():
        try:
            up = ("up", "--detach", "--no-build", "--pull=never", "--no-deps", "--wait", "--wait-timeout=120")
            try:
                stack.compose(*up, *STARTED, within=300)
            except AssertionError as failed:
                failed.add_note(stack.compose("logs", "--tail=40"))
                raise
            yield stack
        finally:
            subprocess.run(
                (*command, "down", "--volumes", "--timeout=2"), env=engine.environment | variables, cwd=ROOT, check=False
            )


def test_what_was_published_is_served_from_storage(stack: Stack) -> None:
    answer = stack.classify()
    assert answer.status_code == 200, answer.text
    assert answer.json()["version"] == "noop:1"
    assert "wrote" in stack.compose("logs", "--no-log-prefix", "publish")


def test_each_part_runs_hardened(stack: Stack) -> None:
    for service in ("gateway", "triton", "redis", "storage"):
        container = stack.compose("ps", "--quiet", service).strip()
        told = json.loads(stack.engine.podman("inspect", container))[0]["HostConfig"]
        assert told["ReadonlyRootfs"], service
        assert "no-new-privileges" in str(told["SecurityOpt"]), service


PROBE = """
import socket
for name, port in (("redis", 6379), ("triton", 8001), ("storage", 8333)):
    try:
        socket.create_connection((name, port), 2)
        print(name)
    except OSError:
        pass
"""


def test_each_part_is_reached_by_those_who_use_it_alone(stack: Stack) -> None:
    reached = {
        service: stack.compose("exec", "-T", service, "python3", "-c", PROBE).split()
        for service in ("gateway", "redis", "triton")
    }
    assert reached == {"gateway": ["redis", "triton"], "redis": ["redis"], "triton": ["triton", "storage"]}


def test_limits_go_on_while_redis_is_dead_and_are_shared_again_when_it_is_back(stack: Stack) -> None:
    stack.until(degraded=False)
    stack.compose("kill", "--signal=KILL", "redis")
    stack.until(degraded=True)
    stack.compose("start", "redis")
    stack.until(degraded=False)


def test_an_ended_triton_is_a_problem_with_a_retry_after_and_heals(stack: Stack) -> None:
    stack.compose("kill", "--signal=KILL", "triton")
    refused = stack.classify()
    assert refused.status_code == 503
    assert int(refused.headers["retry-after"]) >= 1
    stack.compose("start", "triton")
    deadline = time.monotonic() + 90
    while stack.classify().status_code != 200:
        assert time.monotonic() < deadline
        time.sleep(0.2)


def test_the_gateway_drains_on_stop(stack: Stack) -> None:
    stack.compose("stop", "gateway")
    container = stack.compose("ps", "--all", "--quiet", "gateway").strip()
    assert json.loads(stack.engine.podman("inspect", container))[0]["State"]["ExitCode"] == 0
