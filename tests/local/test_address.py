"""Addresses to listen at, and who has them."""

import os
import socket

import pytest

from app.local.address import QUIET, Address
from app.local.trouble import Exit, Trouble


@pytest.mark.parametrize(
    ("text", "address", "url"),
    [
        ("127.0.0.1:8080", Address("127.0.0.1", 8080), "http://127.0.0.1:8080"),
        ("0.0.0.0:80", Address("0.0.0.0", 80), "http://127.0.0.1:80"),
        ("[::1]:8080", Address("::1", 8080), "http://[::1]:8080"),
        ("[::]:8080", Address("::", 8080), "http://[::1]:8080"),
        ("localhost:8080", Address("localhost", 8080), "http://localhost:8080"),
    ],
)
def test_an_address_is_read_and_shown_as_a_browser_finds_it(text: str, address: Address, url: str) -> None:
    assert Address.parse(text) == address
    assert str(address) == text
    assert address.url == url


@pytest.mark.parametrize("text", ["", "8080", "127.0.0.1", "127.0.0.1:", "127.0.0.1:http", "127.0.0.1:65536", "127.0.0.1:-1"])
def test_what_is_no_address_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(Trouble, match="is not an address") as caught:
        Address.parse(text)
    assert "127.0.0.1:8080" in caught.value.mend


def test_a_taken_address_is_refused_naming_who_has_it_and_how_to_change() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = Address("127.0.0.1", taken.getsockname()[1])
        with pytest.raises(Trouble) as caught:
            address.claim("CONCH_LISTEN")
    assert str(address) in caught.value.what
    assert f"(pid {os.getpid()})" in caught.value.what
    assert "CONCH_LISTEN=127.0.0.1:" in caught.value.mend
    assert caught.value.code == Exit.TAKEN
    assert address.claim("CONCH_LISTEN") == address, "free again"


def test_an_address_of_another_machine_is_refused() -> None:
    with pytest.raises(Trouble, match="Nothing can listen at"):
        Address("192.0.2.1", 8080).claim("CONCH_LISTEN")


def test_port_0_claims_a_free_one() -> None:
    claimed = Address("127.0.0.1", 0).claim("CONCH_LISTEN")
    assert claimed.port in QUIET


def test_several_free_addresses_differ() -> None:
    assert len(set(Address.several_free(20))) == 20
