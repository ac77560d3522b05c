"""Generated clients: made anew, compiled as strictly as their language can, and used."""

import asyncio
import json
import os
import shutil
import sys
from pathlib import Path

import grpc
import pytest

from tests.fakes.triton import FakeTriton, aborting
from tests.gateway.process import RunningGateway
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


async def run(*command: str | Path, **environment: str) -> str:
    """Its standard output; fails the test with all that it said where it failed."""
    process = await asyncio.create_subprocess_exec(*command, cwd=ROOT, env={**os.environ, **environment}, stdout=-1, stderr=-1)
    out, err = await process.communicate()
    assert process.returncode == 0, out.decode() + err.decode()
    return out.decode()


async def python(folder: Path) -> list[str | Path]:
    """Its own client.py hands `*args: Any` on to httpx, which is the one thing that mypy has against it."""
    generate.python(folder)
    lax = ("--disable-error-code", "arg-type", "--no-warn-redundant-casts", "--no-incremental", "--config-file", os.devnull)
    interpreter = TOOLS / "python"
    mypy = (sys.executable, "-m", "mypy", "--strict", "--python-executable", interpreter)
    await run(*mypy, *lax, HERE / "call.py", folder / "conch", MYPYPATH=str(folder))
    return ["env", f"PYTHONPATH={folder}", interpreter, "-W", "error", HERE / "call.py"]


async def typescript(folder: Path) -> list[str | Path]:
    generate.typescript(folder)
    for file in ("call.ts", "tsconfig.json", "package.json"):
        shutil.copy(HERE / file, folder)
    (folder / "node_modules").symlink_to(NODE_TOOLS.parent)
    await run(NODE_TOOLS / "tsc", "--project", folder)
    return ["node", folder / "call.js"]


async def java(folder: Path) -> list[str | Path]:
    generate.java(folder)
    classes = folder / "classes"
    path = f"{classes}:{TOOLS.parent / JAR}"
    sources = [*(folder / "src" / "main").rglob("*.java"), *(HERE / "java").rglob("*.java")]
    await run("javac", "-proc:none", "-Xlint:unchecked,rawtypes,cast", "-Werror", "-d", classes, "-cp", path, *sources)
    return ["java", "-cp", path, "Call"]


MAKERS = {"python": (python, "tight"), "typescript": (typescript, "tight-too"), "java": (java, "tight-as-well")}


@pytest.mark.parametrize("language", MAKERS)
async def test_a_generated_client_compiles_and_calls(
    staged: RunningGateway, stage: FakeTriton, tmp_path: Path, language: str
) -> None:
    make, tight = MAKERS[language]
    call = await make(tmp_path / "sdk")
    stage.behaviours["brief"] = aborting(grpc.StatusCode.UNAVAILABLE, "somewhere in Triton")
    keys = staged.tenants.keys
    outcome = json.loads(await run(*call, staged.address.url, keys["open"], keys[tight]))
    assert outcome.pop("models") == sorted(card["id"] for card in (await staged.get("/v1/models")).json()["data"])
    # The first call finds that it is away; those after it may be told so without one.
    assert outcome["unavailable"].pop("code") in ("unavailable", "model_unavailable")
    assert outcome == OUTCOME
