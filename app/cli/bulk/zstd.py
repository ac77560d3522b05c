"""A zstd file, read as it is needed."""

import io
from typing import Any, BinaryIO

from zstandard import ZstdDecompressor

_PIECE = 64 * 1024


class ZstdFile(io.RawIOBase):
    """Of one frame or several. Raises `EOFError` where the last one is cut short, which zstandard's own reader passes over."""

    def __init__(self, raw: BinaryIO) -> None:
        self._raw = raw
        self._frame: Any = None
        self._compressed = self._held = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._held and self._more():
            pass
        taken, self._held = self._held[: len(buffer)], self._held[len(buffer) :]
        buffer[: len(taken)] = taken
        return len(taken)

    def _more(self) -> bool:
        """Whether there was any; what it is, is held."""
        compressed, self._compressed = self._compressed or self._raw.read(_PIECE), b""
        if not compressed:
            if self._frame is not None:
                raise EOFError("the compressed file ended before its last frame did")
            return False
        if self._frame is None:
            self._frame = ZstdDecompressor().decompressobj()
        self._held = self._frame.decompress(compressed)
        if self._frame.eof:
            self._compressed, self._frame = self._frame.unused_data, None
        return True
