"""A real Triton that loads from a real S3 server what `conch models publish` put there."""

import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from tritonclient.grpc import InferenceServerClient
from tritonclient.utils import InferenceServerException

from app.local.trouble import Trouble
from app.storage.comparison import Comparison
from app.storage.publication import Publication
from tests.conftest import ROOT
from tests.peers import Triton
from tests.storage.fixtures import Storage, described

Start = Callable[..., Awaitable[Triton]]


class Interruption:
    """In the second file: nobody waits for what becomes of the one that is interrupted."""

    def __init__(self) -> None:
        self._heard = 0

    def __call__(self, count: int) -> None:
        self._heard += 1
        if self._heard == 2:
            raise KeyboardInterrupt


def ready_versions(client: InferenceServerClient, model: str) -> list[str]:
    index = client.get_model_repository_index().models
    return sorted(entry.version for entry in index if entry.name == model and entry.state == "READY")


async def test_triton_serves_what_is_published_and_nothing_half_finished(
    storage: Storage, repository: Path, prefix: str, start_triton: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with storage.bucket(prefix) as bucket:
        Publication.plan(repository, bucket).write(bucket, lambda count: None)

        shutil.copytree(repository / "noop-head" / "1", repository / "noop-head" / "2")
        with (repository / "noop-head" / "config.pbtxt").open("a") as config:
            config.write("version_policy: { specific: { versions: [1, 2] } }\n")
        shutil.copytree(ROOT / "tests" / "repository" / "echo", repository / "echo")
        (repository / "noop-head" / "2" / "weights").write_bytes(b"w" * 2_000_000)
        described(repository)
        with pytest.raises(KeyboardInterrupt):
            Publication.plan(repository, bucket).write(bucket, Interruption())
        assert any("a publish has not finished" in fault for fault in Comparison(bucket).faults(lambda count: None))

        credentials = tmp_path / "credentials"
        credentials.write_text(storage.profile("triton"))
        monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(credentials))
        monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        all_at_first = ("--model-control-mode=explicit", "--load-model=*", "--exit-on-error=false")
        triton = await start_triton(extra=(f"--model-repository={storage.for_triton(prefix)}", *all_at_first))
        client = InferenceServerClient(triton.grpc)
        assert ready_versions(client, "noop") == ready_versions(client, "noop-head") == ["1"]
        assert ready_versions(client, "echo") == []
        with pytest.raises(InferenceServerException, match="failed to load 'echo'"):
            client.load_model("echo")
        client.load_model("noop-head")
        assert ready_versions(client, "noop-head") == ["1"]

        Publication.plan(repository, bucket).write(bucket, lambda count: None)
        assert list(Comparison(bucket).faults(lambda count: None)) == []
        client.load_model("noop-head")
        client.load_model("echo")
        assert ready_versions(client, "noop-head") == ["1", "2"]
        assert ready_versions(client, "echo") == ["1"]
        client.close()


async def test_triton_does_not_start_with_wrong_credentials(
    storage: Storage, repository: Path, prefix: str, start_triton: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    with storage.bucket(prefix) as bucket:
        Publication.plan(repository, bucket).write(bucket, lambda count: None)
    for name, value in storage.environment("triton", "guessed").items():
        monkeypatch.setenv(name, value)
    with pytest.raises(Trouble, match="triton ended while it started"):
        await start_triton(extra=(f"--model-repository={storage.for_triton(prefix)}",))
