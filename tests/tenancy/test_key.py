import hashlib
import re
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.tenancy.key import Key, KeyMalformed, KeyMistyped, digest, new_key, read_key


def test_a_new_key_says_who_it_is_for_and_hides_160_bits() -> None:
    text, sha256 = new_key("live", "k1")
    assert re.fullmatch(r"ck_live_k1_[0-9A-Za-z]{33}", text)
    assert read_key(text) == Key(env="live", id="k1")
    assert sha256 == hashlib.sha256(text.encode()).hexdigest() == digest(text.encode()).hex()
    assert 62**27 > 2**160


def test_no_two_keys_are_alike() -> None:
    assert len({new_key("live", "k1")[0] for _ in range(1000)}) == 1000


@settings(deadline=None)
@given(st.integers(0, 43), st.sampled_from("0Aa9Zz_"))
def test_one_wrong_character_is_told_from_an_unknown_key(position: int, character: str) -> None:
    text, _ = new_key("live", "k1")
    wrong = text[:position] + character + text[position + 1 :]
    if wrong != text:
        with pytest.raises((KeyMistyped, KeyMalformed)):
            read_key(wrong)


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text[:-1],
        lambda text: text + "0",
        lambda text: text.upper(),
        lambda text: text.replace("ck_", "sk_"),
        lambda text: text.replace("_k1_", "_K1_"),
        lambda text: " " + text,
        lambda text: text + "\n",
        lambda text: "",
        lambda text: "ключ",
    ],
)
def test_what_is_not_a_key_is_malformed(change: Callable[[str], str]) -> None:
    with pytest.raises(KeyMalformed):
        read_key(change(new_key("live", "k1")[0]))


def test_two_swapped_characters_are_a_typo() -> None:
    text = next(text for text, _ in (new_key("live", "k1") for _ in range(100)) if text[12] != text[13])
    with pytest.raises(KeyMistyped):
        read_key(text[:12] + text[13] + text[12] + text[14:])


@pytest.mark.parametrize(
    ("env", "key_id"), [("", "k1"), ("Live", "k1"), ("live", ""), ("live", "k_1"), ("live", "k" * 65), ("a_b", "k")]
)
def test_names_that_would_break_the_form_are_refused(env: str, key_id: str) -> None:
    with pytest.raises(ValueError, match="lower-case"):
        new_key(env, key_id)
