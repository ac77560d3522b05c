from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from app.tenancy.yaml_document import YamlDocument, YamlInvalid

LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.datetimes()
TREES = st.recursive(LEAVES, lambda below: st.lists(below) | st.dictionaries(st.text(), below), max_leaves=20)


@settings(deadline=None)
@given(TREES)
def test_what_pyyaml_reads_is_what_we_read(tree: object) -> None:
    text = yaml.safe_dump(tree, allow_unicode=True).encode()
    assert YamlDocument(text).value == yaml.safe_load(text)


def test_the_example_reads_alike() -> None:
    text = Path(__file__).parents[2].joinpath("config/tenants.yaml").read_bytes()
    assert YamlDocument(text).value == yaml.safe_load(text)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", None),
        ("# nothing\n", None),
        ("a: &x {b: 1, c: 2}\nd: {<<: *x, c: 3}", {"a": {"b": 1, "c": 2}, "d": {"b": 1, "c": 3}}),
        ("a: &x {b: 1}\nd: &y {b: 2}\ne: {<<: [*x, *y]}", {"a": {"b": 1}, "d": {"b": 2}, "e": {"b": 1}}),
        ('a: {"<<": 1}', {"a": {"<<": 1}}),
        ("a: '0123'\nb: 0123\nc: !!str 12", {"a": "0123", "b": 83, "c": "12"}),
    ],
)
def test_anchors_merges_and_tags_work(text: str, value: object) -> None:
    assert YamlDocument(text.encode()).value == value


@pytest.mark.parametrize(
    ("text", "line", "sentence"),
    [
        (b"a: 1\nb: 2\na: 3", 3, "a is there twice"),
        (b"a: *nobody", 1, "alias"),
        (b"a:\n  b: c: d", 2, "mapping values are not allowed"),
        (b"a: [1,\nb: 2", 3, "did not find"),
        (b"\ta: 1", 1, "cannot start any token"),
        (b"? [a]\n: 1", 1, "can't be a list"),
        (b"a: {<<: 3}", 1, "only a mapping can be merged"),
        (b"a\n---\nb", 2, "only one document"),
        (b"when: 2027-13-45", 1, "not a value of its kind"),
        (b"a: \xff\xff", 0, "not UTF-8"),
        (b"a: \x00", 0, "not UTF-8"),
        (b"a: " + b"[" * 5000, 1, "nesting"),
    ],
)
def test_faults_have_their_line(text: bytes, line: int, sentence: str) -> None:
    with pytest.raises(YamlInvalid, match=sentence) as caught:
        YamlDocument(text)
    assert caught.value.line == line
