"""$CONCH_HOME: everything that the embedded stack builds, keeps and logs."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from app.local.trouble import Exit, Trouble


@dataclass(frozen=True, slots=True)
class Home:
    path: Path

    @property
    def logs(self) -> Path:
        return self.path / "logs"

    @property
    def key(self) -> Path:
        return self.path / "demo-key"

    @property
    def tenants(self) -> Path:
        return self.path / "tenants.yaml"

    def folder(self, part: str) -> Path:
        """The working directory of a part."""
        return self.path / "run" / part

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Held by one stack at a time; the kernel lets go of it however that one ends."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            what = f"{self.path} can't be used as home: {error.strerror}."
            raise Trouble(what, "Name another one: CONCH_HOME=/some/folder make run", Exit.UNSUITABLE) from error
        with os.fdopen(descriptor, "r+") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise self._taken(lock.read().strip()) from error
            lock.truncate(0)
            lock.write(str(os.getpid()))
            lock.flush()
            yield

    def _taken(self, holder: str) -> Trouble:
        who = f" (pid {holder})" if holder else ""
        mend = "Stop it with Ctrl-C, or give this one a home and addresses of its own:"
        example = "CONCH_HOME=.conch-2 CONCH_LISTEN=127.0.0.1:9080 CONCH_ADMIN_LISTEN=127.0.0.1:9081 make run"
        return Trouble(f"`conch up` already runs in {self.path}{who}.", f"{mend}\n{example}", Exit.TAKEN)
