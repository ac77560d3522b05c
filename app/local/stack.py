"""`conch up`: the whole of it on one machine, in the foreground."""

import asyncio
import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from app.local import machine
from app.local.address import Address
from app.local.board import Board
from app.local.demo import Request, demo_key, write_tenants
from app.local.gateway import gateway
from app.local.home import Home
from app.local.redis import answers, redis
from app.local.supervisor import Supervisor
from app.local.triton import Ports, install, triton
from app.local.trouble import Exit, Trouble

CHECKOUT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class Options:
    """`source` holds model_repository/, config/ and requirements/. `models` is a repository that is already built, and
    `repositories` are served beside it. `traces` is where Triton sends its spans, by OTLP over HTTP."""

    home: Path = Path(".conch")
    listen: str = "127.0.0.1:8080"
    admin_listen: str = "127.0.0.1:8081"
    redis_url: str | None = None
    source: Path = CHECKOUT
    routes: Path | None = None
    models: Path | None = None
    repositories: tuple[Path, ...] = ()
    traces: str | None = None


def up(options: Options) -> int:
    """Runs until a signal ends it; returns the exit code."""
    home = Home(options.home.resolve())
    board = Board()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # until the loop listens, as Ctrl-C
    try:
        machine.check()
        with home.locked():
            stack = Stack(options, home, board)
            return asyncio.run(stack.run())
    except Trouble as trouble:
        sys.stderr.write(f"{trouble}\n")
        return trouble.code
    except KeyboardInterrupt:
        return Exit.INTERRUPTED


class Stack:
    """Everything that is known before the first part starts."""

    def __init__(self, options: Options, home: Home, board: Board) -> None:
        self._options = options
        self._home = home
        self._board = board
        self._listen = Address.parse(options.listen).claim("CONCH_LISTEN")
        self._admin = Address.parse(options.admin_listen).claim("CONCH_ADMIN_LISTEN")
        self._models = options.models or _build(options.source, home.path)
        self._installation = install(home.path)
        self._served = False
        self._key = demo_key(home)
        write_tenants(home, options.source / "config" / "tenants.yaml", self._key)

    async def run(self) -> int:
        """Ends with the first signal; a second one leaves the parts no grace."""
        supervisor = Supervisor(self._home.logs, self._board)
        serving = asyncio.create_task(self._serve(supervisor))

        def stop() -> None:
            if serving.cancelling():
                supervisor.kill()
            else:
                serving.cancel()

        for number in _signals():
            asyncio.get_running_loop().add_signal_handler(number, stop)
        try:
            await serving
        except asyncio.CancelledError:
            self._board.write("All stopped.")
        return Exit.STOPPED if self._served else Exit.INTERRUPTED

    async def _serve(self, supervisor: Supervisor) -> None:
        async with supervisor:
            async with self._board.alive():
                await self._start(supervisor)
            self._served = True
            request = Request(self._listen, self._key)
            self._board.write(self._welcome(request))
            self._board.write(f"  {await request.send()}\n\nCtrl-C stops all of it.")
            await asyncio.Event().wait()

    async def _start(self, supervisor: Supervisor) -> None:
        ports, own_redis = Ports.free(), Address.free()
        repositories = [self._models, *self._options.repositories]
        model_server = triton(self._installation, repositories, ports, self._home.folder("triton"), traces=self._options.traces)
        if self._options.redis_url is None:
            await supervisor.start(redis(own_redis, self._home.folder("redis")), model_server)
        else:
            await self._look_for(self._options.redis_url)
            await supervisor.start(model_server)
        redis_url = self._options.redis_url or f"redis://{own_redis}/0"
        await supervisor.start(gateway(self._listen, self._settings(ports, redis_url), CHECKOUT))

    def _settings(self, ports: Ports, redis_url: str) -> dict[str, str]:
        return {
            "CONCH_ADMIN_LISTEN": str(self._admin),
            "CONCH_REDIS_URL": redis_url,
            "CONCH_TRITON": str(ports.grpc),
            "CONCH_TENANTS_FILE": str(self._home.tenants),
            "CONCH_ROUTES_FILE": str((self._options.routes or self._options.source / "config" / "routes.yaml").resolve()),
        }

    async def _look_for(self, redis_url: str) -> None:
        url = urlsplit(redis_url)
        if url.scheme == "redis" and url.hostname and not await answers(Address(url.hostname, url.port or 6379)):
            self._board.write(f"Redis at {url.hostname} does not answer now. Until it does, the gateway counts by itself.")

    def _welcome(self, request: Request) -> str:
        return f"""
  API         {self._listen.url}
  Swagger UI  {self._listen.url}/docs
  Key         {request.key}  (also in {self._home.key})
  Metrics     {self._admin.url}/metrics
  Logs        {self._home.logs}

Try it in another terminal:

  {request.curl()}
"""


def _signals() -> Iterator[signal.Signals]:
    yield from (signal.SIGINT, signal.SIGTERM)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # under nohup the terminal may go
        yield signal.SIGHUP


def _build(source: Path, home: Path) -> Path:
    # What builds models is heavy and belongs to this command alone, so that it is imported here.
    from app.local.models.failure import BuildFailed
    from app.local.models.repository import build

    try:
        return build(source / "model_repository", home, source / "requirements" / "models.txt")
    except BuildFailed as failure:
        raise Trouble("The models could not be built.", str(failure)) from failure
