"""How far a run has come, beside its output: what makes it safe to break it off anywhere, and to begin again."""

import fcntl
import json
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

from pydantic import BaseModel, NonNegativeInt


class JournalMismatch(Exception):
    pass


class _Content(BaseModel):
    errand: Any
    lines: NonNegativeInt
    bytes: NonNegativeInt
    done: bool
    outcomes: dict[str, int]


class Journal:
    """The output is only ever a beginning of what it will be: answers are added in the order of the records, a post at a time,
    and what the journal does not know of is cut off again. Raises `JournalMismatch` where that can't be kept.
    """

    def __init__(self, output: Path, errand: Mapping[str, Any], *, restart: bool = False) -> None:
        self.path = output.with_name(output.name + ".journal")
        self.lines = self.bytes = 0
        self.is_done = False
        self.outcomes: Counter[str] = Counter()
        self._errand = json.loads(json.dumps(errand))
        if not restart and self.path.exists():
            self._resume()
        elif not restart and output.exists() and output.stat().st_size:
            raise JournalMismatch(f"{output} is there already, and is none of ours; --restart writes over it")
        self._file = self._open(output)
        self._save()

    def add(self, answers: Sequence[bytes], outcomes: Mapping[str, int]) -> None:
        """Of one post. They are on the disk before the journal says so."""
        written = b"".join(answers)
        self._file.write(written)
        self._file.flush()
        os.fsync(self._file.fileno())
        self.lines += len(answers)
        self.bytes += len(written)
        self.outcomes.update(outcomes)
        self._save()

    def finish(self) -> None:
        self.is_done = True
        self._save()

    def __enter__(self) -> "Journal":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._file.close()

    def _resume(self) -> None:
        try:
            content = _Content.model_validate_json(self.path.read_bytes())
        except ValueError:
            raise JournalMismatch(f"{self.path} can't be read; --restart begins anew") from None
        if content.errand != self._errand:
            if not content.lines:
                return  # it never began
            raise JournalMismatch(f"{self.path} is of another file, model or option; --restart begins anew")
        self.lines, self.bytes, self.is_done = content.lines, content.bytes, content.done
        self.outcomes = Counter(content.outcomes)

    def _open(self, output: Path) -> BinaryIO:
        file = output.open("r+b" if output.exists() else "w+b")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(file.fileno()).st_size < self.bytes:
                raise JournalMismatch(f"{output} is shorter than its journal says; --restart begins anew")
            file.truncate(self.bytes)
            file.seek(self.bytes)
        except BlockingIOError:
            file.close()
            raise JournalMismatch(f"another conch bulk writes to {output} now") from None
        except JournalMismatch:
            file.close()
            raise
        return file

    def _save(self) -> None:
        content = {
            "errand": self._errand,
            "lines": self.lines,
            "bytes": self.bytes,
            "done": self.is_done,
            "outcomes": self.outcomes,
        }
        fresh = self.path.with_name(self.path.name + ".new")
        fresh.write_text(json.dumps(content, indent=1) + "\n")
        fresh.replace(self.path)
