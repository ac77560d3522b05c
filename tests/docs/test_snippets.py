"""Every snippet of the documents is run, or read by what it is written for."""

import asyncio
import json
import re
import sys
from collections.abc import Awaitable, Callable, Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pytest
import yaml

from app.api.schemas import Problem
from app.local.watchdog import Watchdog
from app.routing.chart import read_chart
from app.tenancy.issuer import read_issuers
from app.tenancy.snapshot import load
from tests.gateway.process import RunningGateway
from tests.peers import Redis, Triton

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(*kinds: str) -> Iterator[tuple[Path, str, str]]:
    for document in DOCUMENTS:
        yield from (
            (document, kind, text) for kind, text in BLOCK.findall(document.read_text(encoding="utf-8")) if kind in kinds
        )


def named(cases: list[tuple[Any, ...]]) -> list[Any]:
    return [pytest.param(*case, id=f"{case[0].name}-{at}") for at, case in enumerate(cases)]


@pytest.mark.parametrize(("document", "text"), named([(document, text) for document, _, text in blocks("yaml")]))
def test_yaml_is_what_the_gateway_reads(document: Path, text: str, tmp_path: Path) -> None:
    file = tmp_path / "file.yaml"
    file.write_text(text)
    content = yaml.safe_load(text)
    assert read_issuers(file) if "issuers" in content else read_chart(file) if "routes" in content else load(file)


@pytest.mark.parametrize(
    ("document", "text"), named([(document, text) for document, _, text in blocks("json") if "title" in text])
)
def test_problems_have_the_schema_of_problems(document: Path, text: str) -> None:
    assert Problem.model_validate_json(text, strict=True)


@pytest.fixture(scope="session")
async def documented(
    gateways: Callable[..., Awaitable[RunningGateway]], triton: Triton, redis: Redis, watchdog: Watchdog
) -> RunningGateway:
    """As `make run` has it: the models of this repository behind config/routes.yaml."""
    return await gateways(TRITON=triton.grpc, REDIS_URL=redis.url, ROUTES_FILE=str(ROOT / "config" / "routes.yaml"))


def calls() -> list[tuple[Path, str, str | None]]:
    """Each curl line with the answer that is shown right after it, where one is."""
    found = []
    for document in DOCUMENTS:
        shown = list(BLOCK.finditer(document.read_text(encoding="utf-8")))
        for block, following in zip_longest(shown, shown[1:]):
            if block and block[1] == "console" and block[2].startswith("$ curl"):
                answer = following[2] if following is not None and following[1] == "json" else None
                found.append((document, block[2].removeprefix("$ "), answer))
    return found


def test_there_are_calls_to_try() -> None:
    assert calls()


@pytest.mark.parametrize(("document", "command", "answer"), named(calls()))
async def test_a_call_works_as_pasted_and_answers_what_is_shown(
    documented: RunningGateway, document: Path, command: str, answer: str | None, tmp_path: Path
) -> None:
    (tmp_path / ".conch").mkdir()
    (tmp_path / ".conch" / "demo-key").write_text(documented.tenants.keys["open"] + "\n")
    code, out = await shell(command.replace("localhost:8080", str(documented.address)), tmp_path)
    assert code == 0, out
    got = json.loads(out)
    assert "code" not in got, got
    if answer is not None:
        assert rounded(got) == rounded(json.loads(answer))


def rounded(value: Any) -> Any:
    """Another processor may compute the last digits otherwise."""
    if isinstance(value, float):
        return pytest.approx(value, abs=1e-4)
    if isinstance(value, list):
        return [rounded(item) for item in value]
    return {key: rounded(item) for key, item in value.items()} if isinstance(value, dict) else value


def sessions() -> list[tuple[Path, list[str]]]:
    """The `conch` lines of each document, in order; those that stay in the foreground are tried elsewhere."""
    found: dict[Path, list[str]] = {}
    for document, _, text in blocks("console"):
        lines = [line.partition(" # ")[0].removeprefix("$ ").strip() for line in text.splitlines() if "$ conch" in line]
        found.setdefault(document, []).extend(line for line in lines if not re.match(r"conch (up|serve)", line))
    return [(document, lines) for document, lines in found.items() if lines]


@pytest.mark.parametrize(("document", "lines"), named(sessions()))
async def test_commands_do_what_they_are_shown_for(
    documented: RunningGateway, triton: Triton, document: Path, lines: list[str], tmp_path: Path
) -> None:
    (tmp_path / "tenants.yaml").write_text(documented.tenants.path.read_text())
    (tmp_path / "config").symlink_to(ROOT / "config")
    for line in lines:
        code, out = await shell(line.replace("HOST:8001", triton.grpc), tmp_path)
        assert code == 0, f"{line}: {out}"


async def shell(command: str, directory: Path) -> tuple[int | None, str]:
    path = f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin:{ROOT / 'tests' / 'standins'}"
    process = await asyncio.create_subprocess_shell(
        command, cwd=directory, env={"PATH": path, "HOME": str(directory)}, stdout=-1, stderr=-2
    )
    out, _ = await process.communicate()
    return process.returncode, out.decode()
