"""The check that stands before a change of the API."""

import json
import shutil
from copy import deepcopy
from pathlib import Path

import pytest

from app.api.document import Json
from app.main import document_of
from tests.document.check import ROOT, faults


@pytest.fixture(scope="module")
def document() -> Json:
    return document_of()


@pytest.fixture
def repository(tmp_path: Path, document: Json) -> Path:
    """What the check reads, in a state of which it has nothing to say."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "app" / "api" / "pages").mkdir(parents=True)
    for name in ("docs/openapi.json", "docs/openapi-3.0.json", "docs/errors.md", "app/api/pages/errors.md", "CHANGELOG.md"):
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / "docs" / "openapi-released.json").write_text(json.dumps(document))
    return tmp_path


def test_the_committed_documents_are_what_the_code_says(document: Json) -> None:
    assert list(faults(document)) == []


def test_a_stale_copy_is_said(repository: Path, document: Json) -> None:
    (repository / "docs" / "errors.md").write_text("## other")
    assert list(faults(document, repository)) == ["app/api/pages/errors.md is not what the code says: run make openapi"]


def test_a_change_that_breaks_clients_must_be_declared(repository: Path, document: Json) -> None:
    released = deepcopy(document)
    released["paths"]["/v1/older"] = released["paths"]["/v1/models"]
    (repository / "docs" / "openapi-released.json").write_text(json.dumps(released))
    assert [fault.partition(": ")[2] for fault in faults(document, repository)] == ["GET /v1/older is gone"]
    (repository / "CHANGELOG.md").write_text("- **Breaking.** GET /v1/older\n  is gone: use `/v1/models`.")
    assert list(faults(document, repository)) == []
