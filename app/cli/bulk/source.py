"""What is to be sent: the records of a file of any size, one at a time."""

import csv
import gzip
import hashlib
import io
import json
import sys
import zlib
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from zstandard import ZstdError

from app.cli.bulk.zstd import ZstdFile

_LONGEST = 8 * 1024 * 1024
"""Bytes of a line that are sent at most; no gateway takes so many, and says so."""
_HEAD = 64 * 1024

Row = dict[str, Any] | None
"""A record's columns; None where it has none, since it is no JSON object."""


class SourceUnusable(Exception):
    pass


@dataclass(frozen=True, slots=True)
class Columns:
    text: str
    id: str
    expected: str | None = None


class Source:
    """`-` is standard input. Records are lines of NDJSON, or rows of CSV with a header."""

    def __init__(self, path: Path, kind: str | None, columns: Columns) -> None:
        self.path = path
        self.columns = columns
        self.is_stream = str(path) == "-"
        plain = path.with_suffix("") if path.suffix in (".gz", ".zst") else path
        self._separator = {".csv": ",", ".tsv": "\t"}.get(plain.suffix, "," if kind == "csv" else "")
        if kind == "ndjson":
            self._separator = ""
        self._raw: BinaryIO | None = None

    @property
    def size(self) -> int:
        """Bytes, as they are stored; 0 where nobody knows."""
        return 0 if self.is_stream else self.path.stat().st_size

    @property
    def position(self) -> int:
        """How many of them were read."""
        return self._raw.tell() if self._raw is not None and not self.is_stream else 0

    def identity(self) -> dict[str, Any]:
        """What tells it from another file of this name."""
        if self.is_stream:
            return {"name": "-"}
        with self.path.open("rb") as file:
            head = hashlib.sha256(file.read(_HEAD)).hexdigest()
        return {"name": self.path.name, "size": self.size, "head": head}

    def records(self) -> Iterator[tuple[bytes, Row]]:
        """Each as the line that is sent for it, and its columns. Raises `SourceUnusable`."""
        raw = self._raw = sys.stdin.buffer if self.is_stream else self.path.open("rb")
        with nullcontext() if self.is_stream else raw, _inflated(raw, self.path.suffix) as file:
            try:
                yield from self._rows(file) if self._separator else self._lines(file)
            except (EOFError, gzip.BadGzipFile, zlib.error, ZstdError, csv.Error) as error:
                raise SourceUnusable(f"{self.path}: {error}") from error

    def _lines(self, file: BinaryIO) -> Iterator[tuple[bytes, Row]]:
        while raw := file.readline(_LONGEST):
            rest = raw
            while not rest.endswith(b"\n") and (rest := file.readline(_LONGEST)):
                pass
            yield self._line(raw.rstrip(b"\r\n"))

    def _line(self, raw: bytes) -> tuple[bytes, Row]:
        """What is no JSON object is sent as it is: the gateway says what is wrong with it."""
        try:
            row = json.loads(raw)
        except (ValueError, RecursionError):
            return raw, None
        return (self._packed(row), row) if isinstance(row, dict) else (raw, None)

    def _rows(self, file: BinaryIO) -> Iterator[tuple[bytes, Row]]:
        csv.field_size_limit(_LONGEST)
        # Bytes that are no UTF-8 become surrogates, which the gateway refuses in that one row.
        text = io.TextIOWrapper(file, "utf-8-sig", errors="surrogateescape", newline="")
        try:
            rows = csv.DictReader(text, delimiter=self._separator)
            wanted = (self.columns.text, self.columns.expected)
            if missing := [name for name in wanted if name and name not in (rows.fieldnames or ())]:
                raise SourceUnusable(f"{self.path}: the header has no column {missing[0]}")
            for row in rows:
                yield self._packed(row), row
        finally:
            text.detach()

    def _packed(self, row: dict[str, Any]) -> bytes:
        sent = {"id": row.get(self.columns.id), "text": row.get(self.columns.text)}
        return json.dumps({name: value for name, value in sent.items() if value is not None}).encode()


def _inflated(raw: BinaryIO, suffix: str) -> AbstractContextManager[BinaryIO]:
    if suffix == ".gz":
        return gzip.open(raw)  # type: ignore[return-value]
    if suffix == ".zst":
        return io.BufferedReader(ZstdFile(raw))
    return nullcontext(raw)
