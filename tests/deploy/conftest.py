"""Images and stacks, for real. What this machine lacks is said, and the tests are skipped."""

import shutil
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.deploy import standins
from tests.deploy.engine import Engine

NEEDED = ("podman", "runc", "mmdebstrap")
HOW = "apt install --no-install-recommends podman runc netavark aardvark-dns iptables catatonit uidmap mmdebstrap"


@pytest.fixture(scope="session")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Engine:
    if missing := [program for program in NEEDED if shutil.which(program) is None]:
        pytest.skip(f"NOT TESTED: no {', '.join(missing)} here. As root, on Debian 12: {HOW}")
    return Engine.at(tmp_path_factory.mktemp("engine"))


@pytest.fixture(scope="session")
def image(engine: Engine) -> str:
    """The gateway's, by the project's own Dockerfile over a stand-in for its base."""
    return built(engine, "gateway", "PYTHON_IMAGE", standins.python(engine))


@pytest.fixture(scope="session")
def triton_image(engine: Engine) -> str:
    return built(engine, "triton", "TRITON_IMAGE", standins.triton(engine))


def built(engine: Engine, target: str, argument: str, base: str) -> str:
    tag = f"localhost/conch-test/{target}:1"
    engine.build(tag, ROOT, f"--build-arg={argument}={base}", f"--target={target}")
    return tag


@pytest.fixture(scope="session")
def compose() -> Path:
    return ROOT / ".venv-deploy" / "bin" / "docker-compose"
