"""Starts the command line in milliseconds: by forks of a process that has imported all of it, and has done nothing else.

What comes out is a process like any other, with a number, a group, an environment and an end of its own. It runs what
`python -m app.cli ARGUMENTS` runs; only the second that the imports take was spent before.
"""

import asyncio
import atexit
import gc
import json
import os
import signal
import socket
import subprocess
import sys
from asyncio.subprocess import Process
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from tempfile import TemporaryFile
from typing import NoReturn, cast

from app.local.part import Part, Run
from app.local.watchdog import Watchdog

ROOT = Path(__file__).resolve().parents[1]


class Fork:
    """One of them, as asyncio has its processes."""

    def __init__(self, pid: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._ending = asyncio.create_task(self._end(reader, writer))

    async def wait(self) -> int:
        return await asyncio.shield(self._ending)

    def terminate(self) -> None:
        if self.returncode is not None:
            raise ProcessLookupError
        os.kill(self.pid, signal.SIGTERM)

    async def _end(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> int:
        self.returncode = int(await reader.readline())
        writer.close()
        return self.returncode


@cache
def _origin() -> socket.socket:
    """The way to the process that is forked: one for each of pytest's, begun when first needed. It ends with the channel."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("CONCH_", "OTEL_"))}
    process = subprocess.Popen(
        (sys.executable, "-m", __name__, str(theirs.fileno())),
        cwd=ROOT,
        env={**clean, "OPENBLAS_NUM_THREADS": "1"},  # a process with threads is not to be forked
        stdin=subprocess.DEVNULL,
        pass_fds=(theirs.fileno(),),
    )
    theirs.close()
    atexit.register(process.wait)
    atexit.register(ours.close)  # which comes first
    return ours


async def fork(arguments: Sequence[str], environment: Mapping[str, str], directory: Path, *streams: int) -> Fork:
    """`streams` are what its input, output and errors are to be."""
    ours, theirs = socket.socketpair()
    request = json.dumps((arguments, dict(environment), str(directory))).encode()
    socket.send_fds(_origin(), [request], [*streams, theirs.fileno()])
    theirs.close()
    reader, writer = await asyncio.open_connection(sock=ours)
    return Fork(int(await reader.readline()), reader, writer)


async def call(
    arguments: Sequence[str], environment: Mapping[str, str], directory: Path, stdin: str = ""
) -> tuple[int, str, str]:
    """Its exit code, and what it says on each stream."""
    with TemporaryFile("w+") as given, TemporaryFile("w+") as out, TemporaryFile("w+") as err:
        given.write(stdin)
        given.seek(0)
        process = await fork(arguments, environment, directory, *(stream.fileno() for stream in (given, out, err)))
        code = await process.wait()
        out.seek(0)
        err.seek(0)
        return code, out.read(), err.read()


async def run(part: Part, log: Path, watchdog: Watchdog) -> Run:
    """As `Run.start` starts it, where the part's command is `python -m app.cli ...`."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output, open(os.devnull) as nothing:  # noqa: ASYNC230, PTH123
        streams = (stream.fileno() for stream in (nothing, output, output))
        process = await fork(part.command[3:], part.environment, part.directory, *streams)
    watchdog.guard(process.pid, part.shared_memory)
    return Run(part, cast(Process, process), log, watchdog)


def _serve(channel: socket.socket) -> tuple[list[str], dict[str, str], str]:
    """Forks for as long as somebody asks. Returns in the forks only, each with what it is asked for."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # at Ctrl-C pytest ends them in its own order
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        request, descriptors, _, _ = socket.recv_fds(channel, 2**20, 4)
        if not request:
            sys.exit()
        if not os.fork():
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            channel.close()
            if pid := os.fork():
                _keep(pid, descriptors)
            _become(descriptors)
            arguments, environment, directory = json.loads(request)
            return arguments, environment, directory
        for descriptor in descriptors:
            os.close(descriptor)


def _keep(pid: int, descriptors: list[int]) -> NoReturn:
    """Says how it ended, as its parent."""
    *streams, report = descriptors
    for stream in streams:
        os.close(stream)
    _, status = os.waitpid(pid, 0)
    with suppress(OSError):
        os.write(report, b"%d\n" % os.waitstatus_to_exitcode(status))
    os._exit(0)


def _become(descriptors: list[int]) -> None:
    *streams, report = descriptors
    os.setsid()
    os.write(report, b"%d\n" % os.getpid())
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    for descriptor in descriptors:
        os.close(descriptor)
    signal.signal(signal.SIGINT, signal.default_int_handler)


if __name__ == "__main__":
    import app.server  # noqa: F401
    from app.cli import main
    from app.main import pages

    pages("")
    gc.freeze()  # a collection in a fork would copy all the pages that it walks
    given, environment, directory = _serve(socket.socket(fileno=int(sys.argv[1])))
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(directory)
    sys.argv[1:] = given
    main(given, prog_name="conch")
