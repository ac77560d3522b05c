"""`conch models publish` and `verify`, as they are typed."""

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from app.cli import main
from tests.storage.fixtures import Storage, described


@pytest.fixture
def home(repository: Path) -> Path:
    return repository.parent


def conch(storage: Storage, home: Path, *words: str, who: str = "publisher", secret: str | None = None) -> Result:
    return CliRunner(env=storage.environment(who, secret)).invoke(main, ["models", *words, "--home", str(home)])


async def test_a_dry_run_says_each_file_and_writes_none(storage: Storage, home: Path, prefix: str) -> None:
    said = conch(storage, home, "publish", f"s3://models/{prefix}", "--dry-run")
    assert said.exit_code == 0
    assert said.stdout.startswith("would write noop-head/1/model.py (")
    assert said.stdout.splitlines()[-1].startswith("would write 6 files (")
    with storage.bucket(prefix) as bucket:
        assert bucket.sizes() == {}


async def test_what_is_published_is_verified_and_published_no_more(storage: Storage, home: Path, prefix: str) -> None:
    address = storage.for_triton(prefix)  # the same words as Triton's
    assert conch(storage, home, "publish", address).stdout.splitlines()[-1].startswith("wrote 6 files (")
    assert conch(storage, home, "verify", address).stdout == "all is well\n"
    assert conch(storage, home, "publish", address).stdout == "all of it is published already\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("verify", "s3://models/empty"), "s3://models/empty has no manifest.json"),
        (("publish", "s3://elsewhere/x"), "there is no bucket elsewhere"),
        (("publish", "models/x"), "models/x is not an address: write s3://bucket/prefix"),
    ],
)
async def test_what_can_t_be_done_is_one_line_and_exit_code_1(
    storage: Storage, home: Path, words: tuple[str, ...], said: str
) -> None:
    result = conch(storage, home, *words)
    assert result.exit_code == 1
    assert result.stderr.splitlines()[-1].startswith(f"error: {said}") or said in result.stderr
    assert "Traceback" not in result.output


async def test_a_repository_that_is_not_as_it_was_built_is_not_published(storage: Storage, home: Path, prefix: str) -> None:
    (home / "models" / "noop" / "config.pbtxt").write_text("changed by hand")
    said = conch(storage, home, "publish", f"s3://models/{prefix}")
    assert (said.exit_code, said.stderr) == (1, "error: noop/config.pbtxt has changed.\n")


async def test_a_repository_of_anybody_s_is_published_as_it_lies_there(storage: Storage, home: Path, prefix: str) -> None:
    theirs = home / "models"
    (theirs / "manifest.json").unlink()
    assert "no manifest.json" in conch(storage, home, "publish", f"s3://models/{prefix}").stderr
    said = conch(storage, home, "publish", f"s3://models/{prefix}", "--repository", str(theirs))
    assert said.stdout.splitlines()[-1].startswith("wrote 6 files (")
    assert not (theirs / "manifest.json").exists()
    assert conch(storage, home, "verify", f"s3://models/{prefix}", who="triton").stdout == "all is well\n"


async def test_a_changed_version_is_refused_before_anything_is_written(storage: Storage, home: Path, prefix: str) -> None:
    conch(storage, home, "publish", f"s3://models/{prefix}")
    (home / "models" / "noop-head" / "1" / "model.py").write_text("# otherwise\n")
    described(home / "models")
    said = conch(storage, home, "publish", f"s3://models/{prefix}")
    assert said.exit_code == 1
    assert said.stderr.startswith("error: noop-head/1 is published and differs (noop-head/1/model.py).")
    assert conch(storage, home, "verify", f"s3://models/{prefix}", who="triton").exit_code == 0


async def test_wrong_credentials_are_one_line(storage: Storage, home: Path) -> None:
    said = conch(storage, home, "verify", "s3://models/x", secret="guessed")
    assert (said.exit_code, said.stderr) == (
        1,
        "error: s3://models/x: storage refuses these credentials (SignatureDoesNotMatch).\n",
    )
