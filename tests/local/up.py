"""`conch up` in a process of its own, and what a test may ask about it."""

import asyncio
import shutil
import subprocess
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from app.local.address import Address
from app.local.watchdog import SHARED_MEMORY
from tests.peers import ROOT, Served

UP = """
import sys
from pathlib import Path
from app.local.stack import Options, up

home, listen, admin, models, routes = sys.argv[1:]
sys.exit(up(Options(home=Path(home), listen=listen, admin_listen=admin, models=Path(models), routes=Path(routes))))
"""


@dataclass(slots=True)
class Up:
    process: Process
    home: Path
    listen: Address
    admin: Address
    said: str = ""

    @classmethod
    async def begin(
        cls, home: Path, listen: Address | None = None, admin: Address | None = None, models: Path | None = None
    ) -> "Up":
        """With `models` and the routes of the project, or with one tiny ensemble, which starts fast."""
        listen, admin = listen or Address.free(), admin or Address.free()
        routes = ROOT / "config" / "routes.yaml" if models else ROOT / "tests" / "local" / "routes.yaml"
        command = (sys.executable, "-c", UP, *map(str, (home, listen, admin, models or noop_alone(home), routes)))
        process = await asyncio.create_subprocess_exec(
            *command, stdout=PIPE, stderr=subprocess.STDOUT, cwd=ROOT, start_new_session=True
        )
        return cls(process, home, listen, admin)

    async def says(self, words: str, after: int = 0) -> None:
        assert self.process.stdout is not None
        async with asyncio.timeout(120):
            while words not in self.said[after:]:
                line = await self.process.stdout.readline()
                assert line, f"it ended without saying {words!r}:\n{self.said}"
                self.said += line.decode()

    async def ready(self) -> "Up":
        await self.says("Ctrl-C stops all of it.")
        return self

    async def end(self) -> int:
        """Its exit code, once it has said all that it has to say."""
        async with asyncio.timeout(60):
            rest, _ = await self.process.communicate()
        self.said += rest.decode()
        assert self.process.returncode is not None
        return self.process.returncode

    async def put_away(self) -> None:
        if self.process.returncode is None:
            self.process.terminate()
            await self.end()

    def parts(self) -> Iterator[tuple[int, list[str]]]:
        """Their numbers and command lines."""
        for child in Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split():
            yield int(child), Path(f"/proc/{child}/cmdline").read_text().split("\0")

    def gateway(self) -> int:
        (pid,) = (pid for pid, command in self.parts() if command[2:4] == ["app.cli", "serve"])
        return pid

    def triton(self) -> Served:
        (told,) = (command for _, command in self.parts() if command[0].endswith("/tritonserver"))
        options = dict(argument.split("=", 1) for argument in told if "=" in argument)
        return Served(*(f"{options[f'--{kind}-address']}:{options[f'--{kind}-port']}" for kind in ("http", "grpc", "metrics")))

    def line_after(self, words: str) -> str:
        lines = self.said.splitlines()
        return next(line.strip() for line in lines[lines.index(words) + 1 :] if line.strip())

    def leftovers(self) -> list[str]:
        """Processes that run from its home or speak of it, and names in shared memory of its own."""
        lines = [
            line.read_bytes().replace(b"\0", b" ").decode() for line in Path("/proc").glob("[0-9]*/cmdline") if exists(line)
        ]
        regions = [region.name for region in SHARED_MEMORY.glob(f"conch-{self.process.pid}-*")]
        ports = [str(address) for address in (self.listen, self.admin) if not address.is_free()]
        return [line for line in lines if str(self.home) in line] + regions + ports


def noop_alone(home: Path) -> Path:
    """With one process for each step, so that it starts fast."""
    repository = home.parent / "repository"
    for model in ("noop", "noop-tokenizer", "noop-head"):
        folder = repository / model
        if not folder.exists():
            shutil.copytree(ROOT / "tests" / "repository" / model, folder, ignore=shutil.ignore_patterns("__pycache__"))
            config = folder / "config.pbtxt"
            config.write_text(config.read_text().replace("count: 2", "count: 1"))
    return repository


def exists(command_line: Path) -> bool:
    try:
        return bool(command_line.read_bytes())
    except OSError:
        return False
