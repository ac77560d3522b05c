"""What leads to a bucket: addresses, credentials, signatures, and a storage that stumbles."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest

from app.storage.address import StorageAddress
from app.storage.bucket import Bucket
from app.storage.credentials import Credentials
from app.storage.failure import StorageFailed
from app.storage.signature import EMPTY, path_of, query_of, signed

ME = {"AWS_ACCESS_KEY_ID": "me", "AWS_SECRET_ACCESS_KEY": "mine"}


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("s3://models", StorageAddress("models")),
        ("s3://models/conch/1/", StorageAddress("models", "conch/1/")),
        ("s3://http://storage:8333/models/conch", StorageAddress("models", "conch/", "http://storage:8333")),
        ("s3://https://s3.example.org:443/models", StorageAddress("models", "", "https://s3.example.org:443")),
    ],
)
def test_addresses_are_those_of_the_aws_tools_and_of_triton(text: str, address: StorageAddress) -> None:
    assert StorageAddress.parse(text) == address
    assert str(address) == text.rstrip("/")


@pytest.mark.parametrize(
    "text", ["models", "s3:/models", "s3://Models", "s3://http://storage/models", "s3://", "http://storage/models"]
)
def test_other_addresses_are_refused(text: str) -> None:
    with pytest.raises(StorageFailed, match=r"write s3://bucket/prefix"):
        StorageAddress.parse(text)


def test_credentials_come_from_the_environment_or_a_profile(tmp_path: Path) -> None:
    file = tmp_path / "credentials"
    file.write_text("[default]\naws_access_key_id = a\naws_secret_access_key = 100%\n[other]\naws_access_key_id = b\n")
    at = {"AWS_SHARED_CREDENTIALS_FILE": str(file)}
    assert Credentials.find(ME | {"AWS_SESSION_TOKEN": "t"}) == Credentials("me", "mine", "t")
    assert Credentials.find(at) == Credentials("a", "100%")
    for incomplete in ({"AWS_PROFILE": "other"}, {"AWS_PROFILE": "none"}, {"AWS_SHARED_CREDENTIALS_FILE": "/nowhere"}):
        with pytest.raises(StorageFailed, match="There are no credentials: set AWS_ACCESS_KEY_ID"):
            Credentials.find(at | incomplete)
    assert "mine" not in repr(Credentials.find(ME))


# From "Signature Calculations for the Authorization Header" of the S3 API reference: the bucket examplebucket, on 24 May 2013.
KEYS = Credentials("AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY")


@pytest.mark.parametrize(
    ("target", "headers", "signature"),
    [
        ("/test.txt", {"range": "bytes=0-9"}, "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"),
        ("/?lifecycle=", {}, "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"),
        (
            f"/?{query_of({'prefix': 'J', 'max-keys': '2'})}",
            {},
            "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7",
        ),
    ],
)
def test_signatures_are_those_of_the_reference(target: str, headers: dict[str, str], signature: str) -> None:
    host = {"host": "examplebucket.s3.amazonaws.com"}
    sent = signed("GET", target, host | headers, EMPTY, KEYS, "us-east-1", datetime(2013, 5, 24, tzinfo=UTC))
    assert sent["authorization"].endswith(f",Signature={signature}")


def test_a_session_token_is_signed_too() -> None:
    keys = Credentials("a", "b", "token")
    sent = signed("GET", path_of("bucket"), {"host": "h"}, EMPTY, keys, "us-east-1", datetime(2013, 5, 24, tzinfo=UTC))
    assert sent["x-amz-security-token"] == "token"
    assert "SignedHeaders=host;x-amz-content-sha256;x-amz-date;x-amz-security-token," in sent["authorization"]


@contextmanager
def stumbling(*statuses: int) -> Iterator[tuple[str, list[bytes]]]:
    """A storage that answers with these statuses in turn, and what it was sent."""
    answers, bodies = list(statuses), list[bytes]()

    class Handler(BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            bodies.append(self.rfile.read(int(self.headers["content-length"])))
            self.send_response(answers.pop(0))
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *arguments: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", bodies
        server.shutdown()
        thread.join()


def write(endpoint: str, folder: Path, tick: list[int]) -> None:
    (folder / "file").write_bytes(b"content")
    with Bucket(StorageAddress("models", "", endpoint), ME, pauses=(0.01, 0.01)) as bucket:
        bucket.write("file", folder / "file", "0" * 64, tick.append)


def test_what_storage_could_not_take_is_sent_again_whole(tmp_path: Path) -> None:
    told: list[int] = []
    with stumbling(503, 500, 200) as (endpoint, bodies):
        write(endpoint, tmp_path, told)
    assert bodies == [b"content"] * 3
    assert sum(told) == 7


def test_a_storage_that_never_recovers_is_said(tmp_path: Path) -> None:
    told: list[int] = []
    with stumbling(503, 503, 503) as (endpoint, _), pytest.raises(StorageFailed, match=r"answers 503"):
        write(endpoint, tmp_path, told)
    assert sum(told) == 0


def test_a_storage_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(StorageFailed, match=r"http://127.0.0.1:9 can't be reached \(ConnectError\)"):
        write("http://127.0.0.1:9", tmp_path, [])
