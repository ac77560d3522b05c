"""Every snippet of the documents is run, or read by what it is written for."""

import asyncio
import json
import os
import re
import shlex
import shutil
import sys
from collections.abc import Awaitable, Callable, Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pytest
import yaml

from app.api.example_answers import ANSWERS
from app.api.examples import REQUESTS
from app.api.schemas import Problem
from app.local.watchdog import Watchdog
from app.routing.chart import read_chart
from app.tenancy.issuer import read_issuers
from app.tenancy.snapshot import load
from tests import forks
from tests.gateway.process import RunningGateway
from tests.peers import Redis, Served
from tests.storage.fixtures import Storage

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
RUNTIMES = {"python": ("python", "program.py"), "js": ("node", "program.mjs")}
NODE_MODULES = ROOT / ".venv" / "node_modules"
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
    gateways: Callable[..., Awaitable[RunningGateway]], triton: Served, redis: Redis, watchdog: Watchdog
) -> RunningGateway:
    """As `make run` has it: the models of this repository behind config/routes.yaml."""
    return await gateways(TRITON=triton.grpc, REDIS_URL=redis.url, ROUTES_FILE=str(ROOT / "config" / "routes.yaml"))


def followed(answer_kind: str) -> Iterator[tuple[Path, str, str, str | None]]:
    """Each block with its kind, and the answer that is shown right after it, where one is."""
    for document in DOCUMENTS:
        shown = list(BLOCK.finditer(document.read_text(encoding="utf-8")))
        for block, following in zip_longest(shown, shown[1:]):
            if block is not None:
                answer = following[2] if following is not None and following[1] == answer_kind else None
                yield document, block[1], block[2], answer


def calls() -> list[tuple[Path, str, str | None]]:
    return [
        (document, text.removeprefix("$ "), answer)
        for document, kind, text, answer in followed("json")
        if kind == "console" and text.startswith("$ curl")
    ]


def programs() -> list[tuple[Path, str, str, str | None]]:
    """But those of generated clients, which tests/sdk tries."""
    return [program for program in followed("text") if program[1] in RUNTIMES and "from conch import" not in program[2]]


def test_there_are_calls_to_try() -> None:
    assert calls()


@pytest.mark.parametrize(("document", "command", "answer"), named(calls()))
async def test_a_call_works_as_pasted_and_answers_what_is_shown(
    documented: RunningGateway, document: Path, command: str, answer: str | None, tmp_path: Path
) -> None:
    keep_key(documented, tmp_path)
    here = command.replace("localhost:8080", str(documented.address))
    here = here.replace("localhost:8081", documented.admin.removeprefix("http://"))
    code, out = await shell(here, tmp_path)
    assert code == 0, out
    got = read(out)
    assert "code" not in got, got
    if answer is not None:
        shown = read(answer)
        assert got.keys() == shown.keys()
        assert rounded(got) == rounded({**shown, **({"id": got["id"]} if "id" in got else {})})  # each request has its own


def read(text: str) -> dict[str, Any]:
    """NDJSON is read as its lines, by their numbers."""
    try:
        return dict(json.loads(text))
    except json.JSONDecodeError:
        return {str(at): json.loads(line) for at, line in enumerate(text.splitlines())}


@pytest.mark.parametrize(
    ("task", "name"), [(task, name) for task, examples in REQUESTS.items() for name in examples], ids=lambda part: part
)
async def test_an_example_of_the_api_s_document_works_as_pasted(documented: RunningGateway, task: str, name: str) -> None:
    headers = {"x-request-id": ANSWERS["rerank"]["id"]}  # which clients of rerankers want in the answer
    answer = await documented.post(f"/v1/{task}", REQUESTS[task][name], headers=headers)
    assert answer.status_code == 200, answer.text
    if name == next(iter(REQUESTS[task])):
        content = answer.json()
        for item in content.get("data", ()):
            item["embedding"] = item["embedding"][:4]
        assert rounded(content) == ANSWERS[task]


async def test_the_models_are_listed_as_the_api_s_document_shows_them(documented: RunningGateway) -> None:
    listed = {card["id"]: card for card in (await documented.get("/v1/models")).json()["data"]}
    assert ANSWERS["list_models"]["data"] == [listed[card["id"]] for card in ANSWERS["list_models"]["data"]]
    assert (await documented.get("/v1/models/sentiment")).json() == ANSWERS["get_model"]


def rounded(value: Any) -> Any:
    """Another processor may compute the last digits otherwise."""
    if isinstance(value, float):
        return pytest.approx(value, abs=1e-4)
    if isinstance(value, list):
        return [rounded(item) for item in value]
    return {key: rounded(item) for key, item in value.items()} if isinstance(value, dict) else value


@pytest.mark.parametrize(("document", "kind", "program", "said"), named(programs()))
async def test_a_program_works_as_pasted_and_says_what_is_shown(
    documented: RunningGateway, document: Path, kind: str, program: str, said: str | None, tmp_path: Path
) -> None:
    runtime, file = RUNTIMES[kind]
    if runtime == "node":
        if not (shutil.which("node") and NODE_MODULES.is_dir()) and "CI" not in os.environ:
            pytest.skip("there is no Node here, or `make test` had no npm to install its packages with")
        (tmp_path / "node_modules").symlink_to(NODE_MODULES)
    keep_key(documented, tmp_path)
    (tmp_path / file).write_text(program.replace("localhost:8080", str(documented.address)))
    code, out = await shell(f"{runtime} {file}", tmp_path)
    assert code == 0, out
    if said is not None:
        assert out.splitlines() == said.splitlines()


def loads() -> list[tuple[Path, str]]:
    return [(document, text) for document, _, text in blocks("console") if "\n$ perf_analyzer" in text]


@pytest.mark.skipif(
    not shutil.which("perf_analyzer"), reason="no perf_analyzer here: pip install perf-analyzer, with glibc 2.38"
)
@pytest.mark.parametrize(("document", "lines"), named(loads()))
async def test_perf_analyzer_measures(documented: RunningGateway, document: Path, lines: str, tmp_path: Path) -> None:
    keep_key(documented, tmp_path)
    script = re.sub(r"^\$ ", "", lines, flags=re.MULTILINE).replace("localhost:8080", str(documented.address))
    code, out = await shell(script, tmp_path)
    assert code == 0, out
    assert "Throughput: " in out


def keep_key(gateway: RunningGateway, folder: Path) -> None:
    (folder / ".conch").mkdir()
    (folder / ".conch" / "demo-key").write_text(gateway.tenants.keys["open"] + "\n")


def sessions() -> list[tuple[Path, list[str]]]:
    """The `conch` lines of each document, in order, and what makes their files; those that stay in the foreground are tried
    elsewhere."""
    found: dict[Path, list[str]] = {}
    for document, _, text in blocks("console"):
        shown = [line for line in text.splitlines() if line.startswith(("$ conch", "$ cp", "$ printf"))]
        lines = [line.partition(" # ")[0].removeprefix("$ ").strip() for line in shown]
        found.setdefault(document, []).extend(line for line in lines if not re.match(r"conch (up|serve)", line))
    return [(document, lines) for document, lines in found.items() if lines]


@pytest.mark.parametrize(("document", "lines"), named(sessions()))
async def test_commands_do_what_they_are_shown_for(
    documented: RunningGateway,
    triton: Served,
    storage: Storage,
    small_repository: Path,
    document: Path,
    lines: list[str],
    tmp_path: Path,
) -> None:
    (tmp_path / "tenants.yaml").write_text(documented.tenants.path.read_text())
    (tmp_path / "config").symlink_to(ROOT / "config")
    keep_key(documented, tmp_path)
    (tmp_path / ".conch" / "models").symlink_to(small_repository)
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws" / "credentials").write_text(storage.profile("publisher"))
    for line in lines:
        here = line.replace("HOST:8001", triton.grpc).replace("localhost:8080", str(documented.address))
        here = here.replace("http://storage:8333", storage.url)
        code, out = await (shell if document.name == "README.md" else quickly)(here, tmp_path)
        assert code == 0, f"{line}: {out}"


async def quickly(command: str, directory: Path) -> tuple[int | None, str]:
    """As the shell, which the commands of the README are left to: `conch` with its arguments, and `>` with a file."""
    word, *words = shlex.split(command)
    if word != "conch":
        return await shell(command, directory)
    words, (file,) = (words[:-2], words[-1:]) if ">" in words else (words, ("out",))
    code, out, err = await forks.call(words, environment(directory), directory)
    (directory / file).write_text(out)
    return code, out + err


def environment(directory: Path) -> dict[str, str]:
    path = f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin:{ROOT / 'tests' / 'standins'}"
    return {"PATH": path, "HOME": str(directory)}


async def shell(command: str, directory: Path) -> tuple[int | None, str]:
    process = await asyncio.create_subprocess_shell(command, cwd=directory, env=environment(directory), stdout=-1, stderr=-2)
    out, _ = await process.communicate()
    return process.returncode, out.decode()
