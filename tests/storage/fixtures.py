"""A real S3 server, and a repository that is small enough to be published by every test."""

import asyncio
import json
import os
import shutil
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio

from app.local.address import Address
from app.local.models.manifest import Manifest
from app.local.part import Part
from app.local.watchdog import Watchdog
from app.storage.address import StorageAddress
from app.storage.bucket import Bucket
from app.storage.failure import StorageFailed
from tests.conftest import ROOT
from tests.peers import Peer

SECRETS = {"publisher": "publishers-secret", "triton": "tritons-secret"}
IDENTITIES = {"publisher": ["Admin"], "triton": ["Read:models", "List:models"]}


@dataclass(frozen=True, slots=True)
class Storage:
    """`publisher` may do all, `triton` read alone."""

    url: str

    def environment(self, who: str = "publisher", secret: str | None = None) -> dict[str, str]:
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ACCESS_KEY_ID": who,
            "AWS_SECRET_ACCESS_KEY": secret or SECRETS[who],
            "AWS_REGION": "us-east-1",
        }

    def profile(self, who: str) -> str:
        """A file of credentials, as the AWS tools read it."""
        return f"[default]\naws_access_key_id = {who}\naws_secret_access_key = {SECRETS[who]}\n"

    def bucket(self, prefix: str, who: str = "publisher", secret: str | None = None) -> Bucket:
        return Bucket(StorageAddress("models", f"{prefix}/"), self.environment(who, secret), pauses=(0.01,))

    def for_triton(self, prefix: str) -> str:
        return f"s3://{self.url}/models/{prefix}"


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def storage(watchdog: Watchdog, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Storage]:
    folder = tmp_path_factory.mktemp("storage")
    identities = [
        {"name": name, "credentials": [{"accessKey": name, "secretKey": SECRETS[name]}], "actions": actions}
        for name, actions in IDENTITIES.items()
    ]
    (folder / "identities.json").write_text(json.dumps({"identities": identities}))
    s3, *others = Address.several_free(5)
    part = Part(
        name="storage",
        command=(str(Path(sys.executable).with_name("weed")), *_options(folder, s3, others)),
        environment=dict(os.environ),
        directory=folder,
        is_ready=lambda: asyncio.to_thread(_has_bucket, Storage(s3.url)),
        within=60,
        grace=0,
    )
    peer = Peer(part, folder / "storage.log", watchdog)
    await peer.start()
    yield Storage(s3.url)
    await peer.kill()
    for port in (port for address in (s3, *others) for port in (address.port, address.port + 10_000)):  # gRPC's
        for socket in Path("/tmp").glob(f"seaweedfs-*-{port}.sock"):
            socket.unlink()


def _options(folder: Path, s3: Address, others: list[Address]) -> Iterator[str]:
    yield from ("mini", f"-dir={folder}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-bucket=models", f"-s3.port={s3.port}")
    yield f"-s3.config={folder}/identities.json"
    yield from (
        f"-{name}.port={address.port}" for name, address in zip(("master", "volume", "filer", "admin"), others, strict=True)
    )
    yield from ("-s3.port.iceberg=0", "-s3.port.lance=0", "-s3.iam=false", "-admin.ui=false", "-webdav=false")


def _has_bucket(storage: Storage) -> bool:
    """It is made when all else stands."""
    try:
        with storage.bucket("") as bucket:
            return bucket.sizes() == {}
    except StorageFailed:
        return False


@pytest.fixture
def small_repository(tmp_path: Path) -> Path:
    """One ensemble and its two members, as `conch models build` would leave them."""
    repository = tmp_path / "models"
    for name in ("noop", "noop-head", "noop-tokenizer"):
        shutil.copytree(ROOT / "tests" / "repository" / name, repository / name, ignore=shutil.ignore_patterns("__pycache__"))
    described(repository)
    return repository


def described(repository: Path) -> None:
    """Writes the manifest of what lies there now."""
    Manifest.of(repository, "", {}).write(repository)
