"""`conch models publish` and `verify` against a real S3 server."""

import shutil
from pathlib import Path

import pytest
from google.protobuf import text_format
from tritonclient.grpc.model_config_pb2 import ModelConfig

from app.storage.address import StorageAddress
from app.storage.bucket import Bucket
from app.storage.comparison import Comparison
from app.storage.failure import StorageFailed
from app.storage.publication import NotPublishable, Publication, in_order
from tests.storage.fixtures import Storage, described


def publish(repository: Path, bucket: Bucket) -> list[str]:
    publication = Publication.plan(repository, bucket)
    publication.write(bucket, lambda count: None)
    return [upload.path for upload in publication.uploads]


def faults(bucket: Bucket) -> list[str]:
    return list(Comparison(bucket).faults(lambda count: None))


def with_second_version(repository: Path, policy: str) -> None:
    shutil.copytree(repository / "noop-head" / "1", repository / "noop-head" / "2")
    with (repository / "noop-head" / "config.pbtxt").open("a") as config:
        config.write(policy)
    described(repository)


POLICY = "version_policy: { specific: { versions: [1, 2] } }\n"


def test_configs_come_after_what_they_speak_of_and_ensembles_after_their_members(repository: Path) -> None:
    paths = [
        str(path.relative_to(repository)) for path in repository.rglob("*") if path.is_file() and path.parent != repository
    ]
    assert in_order(repository, paths) == [
        "noop-head/1/model.py",
        "noop-tokenizer/1/model.py",
        "noop/1/.gitkeep",
        "noop-head/config.pbtxt",
        "noop-tokenizer/config.pbtxt",
        "noop/config.pbtxt",
    ]


async def test_a_repository_is_published_once_and_found_whole(storage: Storage, repository: Path, prefix: str) -> None:
    with storage.bucket(prefix) as bucket:
        assert faults(bucket) == [
            f"s3://models/{prefix} has no manifest.json: nothing is published there, or a first publish has not finished."
        ]
        assert len(publish(repository, bucket)) == 6
        assert faults(bucket) == []
        assert not Publication.plan(repository, bucket).is_news
        assert bucket.sizes().keys() == {*Publication.plan(repository, bucket).manifest.files, "manifest.json"}


async def test_how_far_it_is_adds_up(storage: Storage, repository: Path, prefix: str) -> None:
    (repository / "noop-head" / "1" / "weights").write_bytes(b"w" * 3_000_000)
    described(repository)
    sent: list[int] = []
    read: list[int] = []
    with storage.bucket(prefix) as bucket:
        publication = Publication.plan(repository, bucket)
        publication.write(bucket, sent.append)
        comparison = Comparison(bucket)
        assert list(comparison.faults(read.append)) == []
    assert sum(sent) == publication.size == sum(read) == comparison.size > 3_000_000
    assert max(sent) <= 1 << 20


async def test_a_published_version_is_never_written_again(storage: Storage, repository: Path, prefix: str) -> None:
    with storage.bucket(prefix) as bucket:
        publish(repository, bucket)
        (repository / "noop-head" / "1" / "model.py").write_text("# otherwise\n")
        (repository / "noop-tokenizer" / "1" / "more.py").write_text("")
        described(repository)
        with pytest.raises(NotPublishable) as refused:
            Publication.plan(repository, bucket)
        assert [fault.partition(")")[0] for fault in refused.value.faults] == [
            "noop-head/1 is published and differs (noop-head/1/model.py",
            "noop-tokenizer/1 is published and differs (noop-tokenizer/1/more.py",
        ]
        assert faults(bucket) == []


async def test_a_new_version_is_sent_alone_and_only_where_the_config_names_it(
    storage: Storage, repository: Path, prefix: str
) -> None:
    with storage.bucket(prefix) as bucket:
        publish(repository, bucket)
        with_second_version(repository, policy="")
        with pytest.raises(NotPublishable, match=r"noop-head has the versions 1, 2 .* specific: \{ versions: \[1, 2\] \}"):
            Publication.plan(repository, bucket)
        shutil.rmtree(repository / "noop-head" / "1")  # kept in storage, so it still counts
        described(repository)
        with pytest.raises(NotPublishable, match="noop-head has the versions 1, 2"):
            Publication.plan(repository, bucket)
        with (repository / "noop-head" / "config.pbtxt").open("a") as config:
            config.write(POLICY)
        described(repository)
        assert publish(repository, bucket) == ["noop-head/2/model.py", "noop-head/config.pbtxt"]
        assert faults(bucket) == []
        assert "noop-head/1/model.py" in bucket.sizes()


async def test_an_interrupted_publish_is_no_publish_and_goes_on_where_it_stopped(
    storage: Storage, repository: Path, prefix: str
) -> None:
    def interrupt(count: int) -> None:
        raise KeyboardInterrupt

    with storage.bucket(prefix) as bucket:
        publish(repository, bucket)
        with_second_version(repository, POLICY)
        (repository / "noop-head" / "2" / "weights").write_bytes(b"w" * 3_000_000)
        described(repository)
        bucket.write("noop-head/2/model.py", *_of(repository, "noop-head/2/model.py"))
        with pytest.raises(KeyboardInterrupt):
            Publication.plan(repository, bucket).write(bucket, interrupt)
        assert [fault.partition(":")[0] for fault in faults(bucket)] == [
            "noop-head/2/model.py is not in the manifest",
            "noop-head/config.pbtxt has changed.",
        ]
        assert publish(repository, bucket) == ["noop-head/2/weights", "noop-head/config.pbtxt"]
        assert faults(bucket) == []


POLICIES = {"none": "", "latest": "version_policy { latest { num_versions: 1 } }\n", "all": "version_policy: {\n  all: {}\n}\n"}


@pytest.mark.parametrize("before", POLICIES.values(), ids=POLICIES)
async def test_while_half_of_a_new_version_is_there_the_published_config_names_the_old_one(
    storage: Storage, repository: Path, prefix: str, before: str
) -> None:
    config = repository / "noop-head" / "config.pbtxt"
    text = config.read_text()
    with storage.bucket(prefix) as bucket:
        config.write_text(before + text)
        described(repository)
        publish(repository, bucket)
        config.write_text(text)
        with_second_version(repository, POLICY)

        def interrupt(count: int) -> None:
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            Publication.plan(repository, bucket).write(bucket, interrupt)
        held = (bucket.read("noop-head/config.pbtxt") or b"").decode()
        assert text_format.Parse(held, ModelConfig()).version_policy.specific.versions == [1]
        assert publish(repository, bucket)[-1] == "noop-head/config.pbtxt"
        assert (bucket.read("noop-head/config.pbtxt") or b"").decode() == config.read_text()
        assert faults(bucket) == []


def _of(repository: Path, path: str) -> tuple[Path, str]:
    from app.local.models.checksum import sha256_of

    return repository / path, sha256_of(repository / path)


async def test_what_changed_or_vanished_in_storage_is_named(
    storage: Storage, repository: Path, prefix: str, tmp_path: Path
) -> None:
    with storage.bucket(prefix) as bucket:
        publish(repository, bucket)
        other = tmp_path / "other"
        other.write_text("otherwise")
        bucket.write("noop/config.pbtxt", *_of(tmp_path, "other"))
        bucket._send("DELETE", bucket._target("noop/1/.gitkeep"))
        assert faults(bucket) == ["noop/1/.gitkeep is missing.", "noop/config.pbtxt has changed."]
        assert publish(repository, bucket) == ["noop/1/.gitkeep"]  # a version's lost file comes back


@pytest.mark.parametrize("path", ["a b/ü+&?=%41~.py", "1/it's (one)*!", "x" * 200])
async def test_any_path_is_signed_right(storage: Storage, prefix: str, path: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text(path)
    with storage.bucket(f"{hash(path)}") as bucket:
        bucket.write(path, *_of(tmp_path, "file"))
        assert bucket.read(path) == path.encode()
        assert bucket.sizes() == {path: len(path.encode())}
        assert b"".join(bucket.chunks(path)) == path.encode()


async def test_a_long_list_comes_in_pages(
    storage: Storage, prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    with storage.bucket(prefix) as bucket:
        for name in range(7):
            bucket.write(f"{name}", *_of(tmp_path, "file"))
        page = bucket._page
        monkeypatch.setattr(bucket, "_page", lambda query: page(query | {"max-keys": "3"}))
        assert bucket.sizes().keys() == set("0123456")


@pytest.mark.parametrize(
    ("who", "secret", "said"),
    [("publisher", "guessed", "SignatureDoesNotMatch"), ("nobody", "guessed", "InvalidAccessKeyId")],
)
async def test_wrong_credentials_are_named_and_not_shown(storage: Storage, who: str, secret: str, said: str) -> None:
    with storage.bucket("anywhere", who, secret) as bucket, pytest.raises(StorageFailed) as refused:
        bucket.sizes()
    assert str(refused.value) == f"s3://models/anywhere: storage refuses these credentials ({said})."


async def test_who_may_only_read_verifies_and_cannot_publish(storage: Storage, repository: Path, prefix: str) -> None:
    with storage.bucket(prefix) as bucket:
        publish(repository, bucket)
    with_second_version(repository, POLICY)
    with storage.bucket(prefix, "triton") as bucket:
        assert faults(bucket) == []
        with pytest.raises(StorageFailed, match="AccessDenied"):
            publish(repository, bucket)


async def test_a_bucket_that_is_not_there_is_named(storage: Storage) -> None:
    missing = pytest.raises(StorageFailed, match="there is no bucket elsewhere at http")
    with Bucket(StorageAddress("elsewhere"), storage.environment()) as bucket, missing:
        bucket.sizes()
