"""Which Tritons are fit for production."""

import pytest

from app.triton.version import is_outdated


@pytest.mark.parametrize(
    ("version", "outdated"),
    [
        *(("2.51.0", True), ("2.69.9", True), ("1.99", True), ("2.7", True)),
        *(("2.70.0", False), ("2.70.0dev", False), ("2.71", False), ("3.0.0", False)),
        *(("", False), ("unknown", False), ("2", False), ("2.x", False), ("9" * 5000 + ".1", False)),
    ],
    ids=lambda value: str(value)[:12],
)
def test_a_version_is_outdated_where_it_is_known_to_be(version: str, outdated: bool) -> None:
    assert is_outdated(version) is outdated
