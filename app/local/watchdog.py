"""Ends what a supervisor leaves behind when it dies without a chance to stop its parts.

Runs as a process of its own, with nothing but the standard library. A line on its standard input is `guard GROUP PREFIX` or
`release GROUP`: a process group, and the beginning of its names in shared memory (`-` for none). When the input ends, so has
the supervisor: every group still guarded is asked to end, then made to.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from time import monotonic, sleep
from types import TracebackType
from typing import Self

SHARED_MEMORY = Path("/dev/shm")  # noqa: S108
GRACE = 5.0


class Watchdog:
    """The supervisor's end of it. Whoever starts a process group guards it here, and releases it once it has ended."""

    def __enter__(self) -> Self:
        command = [sys.executable, "-I", "-S", __file__]
        # In a session of its own, so that neither Ctrl-C nor the loss of the terminal reaches it.
        process = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)  # noqa: S603
        assert process.stdin is not None  # noqa: S101
        self._process, self._input = process, process.stdin
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._process.communicate()

    def guard(self, group: int, prefix: str | None) -> None:
        self._write(f"guard {group} {prefix or '-'}\n")

    def release(self, group: int) -> None:
        self._write(f"release {group}\n")

    def _write(self, line: str) -> None:
        with suppress(BrokenPipeError):  # somebody killed it; the parts are still stopped in the usual way
            self._input.write(line.encode())
            self._input.flush()


def is_alive(group: int) -> bool:
    """Whether a process of the group still runs; one that only waits to be reaped does not count."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return _belongs(Path(f"/proc/{group}/stat"), group) or size(group) > 0  # mostly its leader, who is found at once


def size(group: int) -> int:
    """How many of its processes run."""
    return sum(_belongs(status, group) for status in Path("/proc").glob("[0-9]*/stat"))


def _belongs(status: Path, group: int) -> bool:
    with suppress(OSError):
        state, _, its_group = status.read_text().rpartition(")")[2].split()[:3]
        return int(its_group) == group and state not in "ZX"
    return False


def sweep(prefix: str) -> None:
    """Unlinks the shared memory whose names begin with `prefix`."""
    for region in SHARED_MEMORY.glob(f"{prefix}*"):
        region.unlink(missing_ok=True)


def end(groups: Mapping[int, str], grace: float = GRACE) -> None:
    for group in groups:
        with suppress(ProcessLookupError):
            os.kill(group, signal.SIGTERM)  # the leader alone: Triton ends its stubs in its own order
    _wait(groups, grace)
    for group in groups:
        with suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)
    _wait(groups, 1)
    for prefix in groups.values():
        if prefix != "-":
            sweep(prefix)


def _wait(groups: Iterable[int], seconds: float) -> None:
    limit = monotonic() + seconds
    while any(map(is_alive, groups)) and monotonic() < limit:
        sleep(0.05)


def watch() -> None:
    guarded: dict[int, str] = {}
    for line in sys.stdin:
        verb, group, *prefix = line.split()
        if verb == "guard":
            guarded[int(group)] = prefix[0]
        else:
            guarded.pop(int(group), None)
    end(guarded)


if __name__ == "__main__":
    watch()
