"""A prefix of a bucket, over S3's REST API. Paths are addressed in the style of every S3-compatible server: /bucket/key."""

import ssl
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from http import HTTPStatus
from pathlib import Path
from time import sleep
from types import TracebackType
from typing import IO, Self
from xml.etree import ElementTree

import httpx

from app.storage.address import StorageAddress
from app.storage.credentials import Credentials
from app.storage.failure import StorageFailed
from app.storage.signature import EMPTY, path_of, query_of, signed

CHUNK = 1 << 20
LARGEST = 5 << 30
"""Of one upload; a larger file would have to go in parts."""
CHECKSUM = "x-amz-meta-sha256"
PAUSES = (0.5, 1.0, 2.0)
"""Between tries, in seconds."""

Tick = Callable[[int], object]
"""Told of bytes that went over the wire; of a negative number when they have to go again."""


@dataclass(frozen=True, slots=True)
class _Body:
    sha256: str
    file: Path
    size: int
    tick: Tick


class Bucket:
    """Blocking: a command uses it, and no request. Every method raises `StorageFailed`."""

    def __init__(self, address: StorageAddress, environment: Mapping[str, str], pauses: tuple[float, ...] = PAUSES) -> None:
        self.address = address
        self._region = environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION") or "us-east-1"
        named = environment.get("AWS_ENDPOINT_URL_S3") or environment.get("AWS_ENDPOINT_URL")
        self._endpoint = httpx.URL(address.endpoint or named or f"https://s3.{self._region}.amazonaws.com")
        self._credentials = Credentials.find(environment)
        self._pauses = pauses
        self._client = httpx.Client(timeout=httpx.Timeout(30), verify=_trusted(environment.get("AWS_CA_BUNDLE")))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._client.close()

    def sizes(self) -> dict[str, int]:
        """The size of every object below the prefix, by its path there."""
        found: dict[str, int] = {}
        query = {"list-type": "2", "prefix": self.address.prefix}
        while True:
            page = self._page(query)
            for entry in page.iterfind("{*}Contents"):
                found[entry.findtext("{*}Key", "").removeprefix(self.address.prefix)] = int(entry.findtext("{*}Size", "0"))
            following = page.findtext("{*}NextContinuationToken")
            if not following:
                return {path: size for path, size in found.items() if path and not path.endswith("/")}
            query["continuation-token"] = following

    def read(self, path: str) -> bytes | None:
        """Nothing where there is no such object."""
        answer = self._send("GET", self._target(path))
        if answer.status_code == HTTPStatus.NOT_FOUND and _code(answer.content) == "NoSuchKey":
            return None
        return self._good(answer).content

    def chunks(self, path: str) -> Iterator[bytes]:
        target = self._target(path)
        try:
            with self._client.stream("GET", self._url(target), headers=self._signed("GET", target, {}, EMPTY)) as answer:
                if not answer.is_success:
                    answer.read()
                    self._good(answer)
                yield from answer.iter_bytes(CHUNK)
        except httpx.TransportError as error:
            raise self._unreachable(error) from error

    def checksum(self, path: str) -> str:
        """What `write` noted; empty for what something else has put there."""
        return str(self._good(self._send("HEAD", self._target(path))).headers.get(CHECKSUM, ""))

    def write(self, path: str, file: Path, sha256: str, tick: Tick = lambda count: None) -> None:
        size = file.stat().st_size
        if size > LARGEST:
            raise StorageFailed(f"{path} is larger than 5 GiB, the most that S3 takes in one piece.")
        self._good(self._send("PUT", self._target(path), _Body(sha256, file, size, tick)))

    def _target(self, path: str) -> str:
        return path_of(self.address.bucket, f"{self.address.prefix}{path}")

    def _page(self, query: Mapping[str, str]) -> ElementTree.Element:
        answer = self._good(self._send("GET", f"{path_of(self.address.bucket)}?{query_of(query)}"))
        try:
            return ElementTree.fromstring(answer.content)  # noqa: S314 - of the storage that the operator trusts with his models
        except ElementTree.ParseError as error:
            raise StorageFailed(f"{self._endpoint} does not answer like S3: it listed the bucket in no XML.") from error

    def _send(self, method: str, target: str, body: _Body | None = None) -> httpx.Response:
        """Tries again what storage could not answer."""
        for pause in (*self._pauses, None):
            try:
                answer = self._once(method, target, body)
            except httpx.TransportError as error:
                if pause is None:
                    raise self._unreachable(error) from error
            else:
                if answer.status_code < HTTPStatus.INTERNAL_SERVER_ERROR or pause is None:
                    return answer
            sleep(pause)
        raise AssertionError("the last try returns or raises")

    def _once(self, method: str, target: str, body: _Body | None) -> httpx.Response:
        if body is None:
            return self._client.request(method, self._url(target), headers=self._signed(method, target, {}, EMPTY))
        headers = self._signed(method, target, {CHECKSUM: body.sha256}, body.sha256) | {"content-length": str(body.size)}
        sent = 0

        def told(count: int) -> None:
            nonlocal sent
            sent += count
            body.tick(count)

        try:
            with body.file.open("rb") as stream:
                answer = self._client.request(method, self._url(target), headers=headers, content=_read(stream, told))
        except httpx.TransportError:
            body.tick(-sent)
            raise
        if not answer.is_success:
            body.tick(-sent)
        return answer

    def _signed(self, method: str, target: str, headers: dict[str, str], payload: str) -> dict[str, str]:
        host = {"host": self._endpoint.netloc.decode("ascii")}
        return signed(method, target, host | headers, payload, self._credentials, self._region, datetime.now(UTC))

    def _url(self, target: str) -> httpx.URL:
        return self._endpoint.copy_with(raw_path=target.encode("ascii"))

    def _unreachable(self, error: httpx.TransportError) -> StorageFailed:
        return StorageFailed(
            f"{self._endpoint} can't be reached ({type(error).__name__}). AWS_ENDPOINT_URL names where storage is."
        )

    def _good(self, answer: httpx.Response) -> httpx.Response:
        if answer.is_success:
            return answer
        code = _code(answer.content) or answer.reason_phrase
        match answer.status_code:
            case HTTPStatus.FORBIDDEN | HTTPStatus.UNAUTHORIZED:
                raise StorageFailed(f"{self.address}: storage refuses these credentials ({code}).")
            case HTTPStatus.NOT_FOUND:
                raise StorageFailed(f"{self.address}: there is no bucket {self.address.bucket} at {self._endpoint} ({code}).")
        raise StorageFailed(f"{self.address}: storage answers {answer.status_code} ({code}).")


def _trusted(bundle: str | None) -> ssl.SSLContext | bool:
    return ssl.create_default_context(cafile=bundle) if bundle else True


def _read(stream: IO[bytes], told: Tick) -> Iterator[bytes]:
    while chunk := stream.read(CHUNK):
        yield chunk
        told(len(chunk))


def _code(content: bytes) -> str:
    try:
        return ElementTree.fromstring(content).findtext("{*}Code") or ""  # noqa: S314
    except ElementTree.ParseError:
        return ""
