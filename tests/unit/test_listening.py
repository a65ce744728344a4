"""Where servers listen, and the files of their TLS."""

import re
from pathlib import Path

import pytest

from penstock.errors import Usage
from penstock.support.listening import host_and_port, is_loopback, server_context


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:80", ("127.0.0.1", 80)),
        ("[::1]:0", ("::1", 0)),
        ("receiver-1.example:65535", ("receiver-1.example", 65_535)),
    ],
)
def test_addresses(text: str, address: tuple[str, int]) -> None:
    assert host_and_port(text) == address


@pytest.mark.parametrize("text", ["80", ":80", "h:", "h:65536", "h:-1", "h:٣", "::1:80", "[h]:80", "[]:80", "a b:80", "h:80 "])
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(ValueError, match=re.escape(text)):
        host_and_port(text)


@pytest.mark.parametrize("host", ["127.0.0.7", "::1", "localhost"])
def test_only_this_machine_reaches_a_loopback_address(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "h"])
def test_others_reach_every_other_address(host: str) -> None:
    assert not is_loopback(host)


@pytest.mark.parametrize("text", [None, "no certificate"])
def test_a_file_that_holds_no_certificate_is_named(text: str | None, tmp_path: Path) -> None:
    file = tmp_path / "cert.pem"
    if text is not None:
        file.write_text(text)
    with pytest.raises(Usage, match=r"cert\.pem and its key .*key\.pem cannot be used"):
        server_context(file, tmp_path / "key.pem")
