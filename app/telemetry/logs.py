"""JSON lines: one for each request, one for each event. Neither ever holds a character of a tenant's text or a key."""

import logging
import sys
from datetime import UTC, datetime
from typing import Any, TextIO

from pydantic_core import to_json

from app.telemetry.exchange import Exchange


def _line(record: dict[str, Any]) -> str:
    return to_json(record).decode() + "\n"


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class _JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        event: dict[str, Any] = {
            "time": _now(),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info and record.exc_info[0]:
            # The traceback's lines name our code; the exception's own text may quote a body, so that only its type is said.
            event["exception"] = record.exc_info[0].__name__
            event["at"] = _frames(record.exc_info[2])
        return _line(event).rstrip("\n")


def _frames(traceback: Any) -> list[str]:
    frames = []
    while traceback is not None:
        code = traceback.tb_frame.f_code
        frames.append(f"{code.co_filename.rsplit('/', 1)[-1]}:{traceback.tb_lineno} {code.co_name}")
        traceback = traceback.tb_next
    return frames[-8:]


def configure_logs(level: str, stream: TextIO = sys.stdout) -> None:
    handler = logging.StreamHandler(stream)
    handler.setFormatter(_JsonFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for talkative in ("httpx", "uvicorn.error"):
        logging.getLogger(talkative).setLevel(logging.WARNING)
    logging.getLogger("opentelemetry.trace.span").setLevel(logging.CRITICAL)  # it quotes what a caller sent as tracestate


class AccessLog:
    """One line for each request, written past `logging`, which would cost more than the rest of the line."""

    def __init__(self, stream: TextIO = sys.stdout) -> None:
        self._write = stream.write
        self._flush = stream.flush

    def record(self, exchange: Exchange, method: str, status: int) -> None:
        self._write(
            _line(
                {
                    "time": _now(),
                    "level": "info",
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
                    "limiter": exchange.limiter,
                    "degraded": exchange.degraded,
                    "admission_ms": round(exchange.admission * 1000, 3),
                    "triton_ms": round(exchange.triton * 1000, 3),
                    "total_ms": round(exchange.elapsed() * 1000, 3),
                }
            )
        )
        self._flush()
