"""JSON lines: one for each request, one for each event. Neither ever holds a character of a tenant's text or a key."""

import asyncio
import logging
import sys
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime
from functools import lru_cache
from random import random
from time import time_ns
from typing import Any, BinaryIO, TextIO

from pydantic_core import to_json

from app.telemetry.exchange import Exchange


def _now() -> str:
    second, rest = divmod(time_ns() // 1_000_000, 1000)
    return f"{_second(second)}.{rest:03}Z"


@lru_cache(4)
def _second(since_1970: int) -> str:
    return datetime.fromtimestamp(since_1970, UTC).strftime("%Y-%m-%dT%H:%M:%S")


_IDS = ("request_id", "trace_id")
"""What an event says of the request that it happened to, where it is logged with these as `extra`."""


class _JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        event: dict[str, Any] = {
            "time": _now(),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **{name: vars(record)[name] for name in _IDS if name in vars(record)},
        }
        if record.exc_info and record.exc_info[0]:
            # The traceback's lines name our code; the exception's own text may quote a body, so that only its type is said.
            event["exception"] = record.exc_info[0].__name__
            event["at"] = _frames(record.exc_info[2])
        return to_json(event).decode()


def _frames(traceback: Any) -> list[str]:
    frames = []
    while traceback is not None:
        code = traceback.tb_frame.f_code
        frames.append(f"{code.co_filename.rsplit('/', 1)[-1]}:{traceback.tb_lineno} {code.co_name}")
        traceback = traceback.tb_next
    return frames[-8:]


def json_handler(stream: TextIO) -> logging.Handler:
    handler = logging.StreamHandler(stream)
    handler.setFormatter(_JsonFormatter())
    return handler


def configure_logs(level: str, stream: TextIO = sys.stdout) -> logging.Handler:
    """The handler of all events, which come from any thread."""
    root = logging.getLogger()
    handler = json_handler(stream)
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for talkative in ("httpx", "uvicorn.error"):
        logging.getLogger(talkative).setLevel(logging.WARNING)
    logging.getLogger("opentelemetry.trace.span").setLevel(logging.CRITICAL)  # it quotes what a caller sent as tracestate
    return handler


HELD_SECONDS = 0.05
_HELD_BYTES = 32 * 1024  # half a pipe: more would wait for whoever reads it


class AccessLog:
    """One line for each request, written past `logging`, which would cost more than the rest of the line. Those of 50 ms leave
    together: a system call for each turn of the event loop is a tenth of a request's CPU.

    A line is an error where the status is one of ours (5xx), else information. `share` is how much is told of what succeeded.
    `beside` writes to the same stream, from any thread. That has no lock of its own with PYTHONUNBUFFERED, and a full pipe
    would tear lines.
    """

    def __init__(
        self,
        level: str = "info",
        share: float = 1.0,
        stream: BinaryIO = sys.stdout.buffer,
        beside: logging.Handler | None = None,
    ) -> None:
        self._stream = stream
        self._lock: AbstractContextManager[Any] = (beside and beside.lock) or nullcontext()
        self._held: list[bytes] = []
        self._size = 0
        self._told = ("info", "error") if level in ("debug", "info") else ("error",)
        self._share = share

    def record(self, exchange: Exchange, method: str, status: int) -> None:
        level = "error" if status >= 500 else "info"
        if level not in self._told or (self._share < 1 and self._share <= random() and _succeeded(exchange, status)):  # noqa: S311
            return
        if not self._held:
            asyncio.get_running_loop().call_later(HELD_SECONDS, self.flush)
        line = to_json(
            {
                "time": _now(),
                "level": level,
                "logger": "conch.access",
                "method": method,
                "route": exchange.route,
                "status": status,
                "code": exchange.code,
                "request_id": exchange.request_id,
                "trace_id": exchange.trace_id,
                "tenant": exchange.tenant,
                "key": exchange.key_id,
                "model": exchange.model,
                "ensemble": exchange.ensemble,
                "inputs": exchange.inputs,
                "characters": exchange.characters,
                "tokens": exchange.tokens,
                "chunks": exchange.chunks,
                **({"lines": exchange.outcomes} if exchange.outcomes else {}),
                "limiter": exchange.limiter,
                "degraded": exchange.degraded,
                "admission_ms": round(exchange.admission * 1000, 3),
                "triton_ms": round(exchange.triton * 1000, 3),
                "total_ms": round(exchange.elapsed() * 1000, 3),
            }
        )
        self._held.append(line)
        self._size += len(line)
        if self._size >= _HELD_BYTES:
            self.flush()

    def flush(self) -> None:
        """What is held. Whoever ends the process does it last."""
        held, self._held, self._size = self._held, [], 0
        if held:
            with self._lock:
                self._stream.write(b"\n".join(held) + b"\n")
                self._stream.flush()


def _succeeded(exchange: Exchange, status: int) -> bool:
    return status < 400 and exchange.outcomes.keys() <= {"ok"}
