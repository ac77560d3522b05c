"""Where a repository lies in object storage."""

import re
from dataclasses import dataclass

from app.storage.failure import StorageFailed

_ADDRESS = re.compile(
    r"s3://(?:(?P<endpoint>https?://[^/:]+:\d+)/)?(?P<bucket>[a-z0-9][a-z0-9.-]{1,61}[a-z0-9])(?:/(?P<prefix>.*))?"
)


@dataclass(frozen=True, slots=True)
class StorageAddress:
    """`prefix` is empty, or ends with a slash. `endpoint` is empty where the environment names it."""

    bucket: str
    prefix: str = ""
    endpoint: str = ""

    @classmethod
    def parse(cls, text: str) -> "StorageAddress":
        """`s3://bucket/prefix`, or as Triton writes it: `s3://http://host:port/bucket/prefix`."""
        match = _ADDRESS.fullmatch(text)
        if match is None:
            raise StorageFailed(f"{text} is not an address: write s3://bucket/prefix, or s3://http://host:port/bucket/prefix.")
        prefix = (match["prefix"] or "").strip("/")
        return cls(match["bucket"], f"{prefix}/" if prefix else "", match["endpoint"] or "")

    def __str__(self) -> str:
        endpoint = f"{self.endpoint}/" if self.endpoint else ""
        return f"s3://{endpoint}{self.bucket}/{self.prefix}".rstrip("/")
