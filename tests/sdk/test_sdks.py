"""Generated clients: made anew, compiled as strictly as their language can, and used."""

import asyncio
import json
import os
import re
import shutil
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import grpc
import pytest

from tests.fakes.triton import FakeTriton, aborting
from tests.gateway.process import RunningGateway
from tests.peers import Redis, Served
from tests.sdk import generate
from tests.sdk.generate import HERE, NODE_TOOLS, ROOT, TOOLS

pytestmark = pytest.mark.sdk

JAR = "lib/python3.11/site-packages/openapi_generator_cli/openapi-generator.jar"
"""It has Jackson in it, which the Java client needs; Maven would fetch the same from its registry."""
REFUSED = {"pointers": [], "waits": False, "named": True}
OUTCOME = {
    "labels": ["red", "green"],
    "dimensions": 8,
    "entities": 0,
    "invalid": {**REFUSED, "status": 422, "code": "invalid_input", "pointers": ["/inputs"]},
    "unauthenticated": {**REFUSED, "status": 401, "code": "unauthenticated"},
    "limited": {**REFUSED, "status": 429, "code": "rate_limited", "waits": True},
    "unavailable": {**REFUSED, "status": 503, "waits": True},
}


async def run(*command: str | Path, cwd: Path = ROOT, **environment: str) -> str:
    """Its standard output; fails the test with all that it said where it failed."""
    process = await asyncio.create_subprocess_exec(*command, cwd=cwd, env={**os.environ, **environment}, stdout=-1, stderr=-1)
    out, err = await process.communicate()
    assert process.returncode == 0, out.decode() + err.decode()
    return out.decode()


PROGRAMS = {
    language: (program, said)
    for language, program, said in re.findall(
        r"^```(\w+)\n(.*?)^```\n\n```text\n(.*?)^```",
        (ROOT / "docs" / "clients.md").read_text("utf-8").split("## Generated SDKs")[1],
        re.MULTILINE | re.DOTALL,
    )
}
"""Of the document, with what they say."""


class Python:
    tight = "tight"

    async def make(self, folder: Path) -> None:
        """Its own client.py hands `*args: Any` on to httpx, which is the one thing that mypy has against it."""
        generate.python(folder)
        lax = ("--disable-error-code", "arg-type", "--no-warn-redundant-casts", "--no-incremental", "--config-file", os.devnull)
        mypy = (sys.executable, "-m", "mypy", "--strict", "--python-executable", TOOLS / "python")
        await run(*mypy, *lax, HERE / "call.py", folder / "conch", MYPYPATH=str(folder))

    def call(self, folder: Path) -> list[str | Path]:
        return ["env", f"PYTHONPATH={folder}", TOOLS / "python", "-W", "error", HERE / "call.py"]

    async def program(self, folder: Path, here: Path, text: str) -> list[str | Path]:
        (here / "program.py").write_text(text)
        return [*self.call(folder)[:-1], here / "program.py"]


class TypeScript:
    tight = "tight-too"

    async def make(self, folder: Path) -> None:
        generate.typescript(folder)
        await self._compile(folder, folder, "call", (HERE / "call.ts").read_text())

    def call(self, folder: Path) -> list[str | Path]:
        return ["node", folder / "call.js"]

    async def program(self, folder: Path, here: Path, text: str) -> list[str | Path]:
        (here / ".sdk").mkdir()
        (here / ".sdk" / "typescript").symlink_to(folder)
        await self._compile(folder, here, "program", text)
        return ["node", here / "program.js"]

    async def _compile(self, folder: Path, here: Path, name: str, text: str) -> None:
        (here / f"{name}.ts").write_text(text)
        for file in ("tsconfig.json", "package.json"):
            shutil.copy(HERE / file, here)
        (here / "node_modules").symlink_to(NODE_TOOLS.parent)
        await run(NODE_TOOLS / "tsc", "--project", here)


class Java:
    tight = "tight-as-well"

    async def make(self, folder: Path) -> None:
        generate.java(folder)
        await self._compile(folder, *(folder / "src" / "main").rglob("*.java"), *(HERE / "java").rglob("*.java"))

    def call(self, folder: Path) -> list[str | Path]:
        return ["java", "-cp", self._path(folder), "Call"]

    async def program(self, folder: Path, here: Path, text: str) -> list[str | Path]:
        (here / "Program.java").write_text(text)
        await self._compile(folder, here / "Program.java")
        return ["java", "-cp", self._path(folder), "Program"]

    async def _compile(self, folder: Path, *sources: Path) -> None:
        strictly = ("-proc:none", "-Xlint:unchecked,rawtypes,cast", "-Werror")
        await run("javac", *strictly, "-d", folder / "classes", "-cp", self._path(folder), *sources)

    def _path(self, folder: Path) -> str:
        return f"{folder / 'classes'}:{TOOLS.parent / JAR}"


Language = Python | TypeScript | Java
LANGUAGES: dict[str, Language] = {"python": Python(), "ts": TypeScript(), "java": Java()}
Made = Callable[[str], Awaitable[Path]]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """`await made(language)`: where its client is, compiled."""
    folders: dict[str, Path] = {}

    async def make(language: str) -> Path:
        if language not in folders:
            folders[language] = tmp_path_factory.mktemp("sdk") / language
            await LANGUAGES[language].make(folders[language])
        return folders[language]

    return make


@pytest.mark.parametrize("language", LANGUAGES)
async def test_a_generated_client_compiles_and_calls(
    staged: RunningGateway, stage: FakeTriton, made: Made, language: str
) -> None:
    folder = await made(language)
    stage.behaviours["brief"] = aborting(grpc.StatusCode.UNAVAILABLE, "somewhere in Triton")
    keys, tight = staged.tenants.keys, LANGUAGES[language].tight
    call = LANGUAGES[language].call(folder)
    outcome = json.loads(await run(*call, staged.address.url, keys["open"], keys[tight]))
    assert outcome.pop("models") == sorted(card["id"] for card in (await staged.get("/v1/models")).json()["data"])
    # The first call finds that it is away; those after it may be told so without one.
    assert outcome["unavailable"].pop("code") in ("unavailable", "model_unavailable")
    assert outcome == OUTCOME


@pytest.mark.parametrize("language", LANGUAGES)
async def test_the_document_s_program_works_as_pasted_and_says_what_is_shown(
    gateways: Callable[..., Awaitable[RunningGateway]],
    triton: Served,
    redis: Redis,
    made: Made,
    language: str,
    tmp_path: Path,
) -> None:
    folder = await made(language)
    routes = str(ROOT / "config" / "routes.yaml")
    gateway = await gateways(TRITON=triton.grpc, REDIS_URL=redis.url, ROUTES_FILE=routes)
    (tmp_path / ".conch").mkdir()
    (tmp_path / ".conch" / "demo-key").write_text(gateway.tenants.keys["open"] + "\n")
    program, said = PROGRAMS[language]
    text = program.replace("localhost:8080", str(gateway.address))
    assert await run(*await LANGUAGES[language].program(folder, tmp_path, text), cwd=tmp_path) == said
