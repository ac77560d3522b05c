from pathlib import Path

import pytest


@pytest.fixture
def repository(small_repository: Path) -> Path:
    return small_repository


@pytest.fixture
def prefix(request: pytest.FixtureRequest) -> str:
    """Of the test's own."""
    return f"tests/{request.node.name}"
