"""Hosts and ports that a declaration names."""

from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.declaration.hosts import is_authority, is_host, is_port


@pytest.mark.parametrize(
    "host", ["a", "mail.example.org", "10.81.0.5", "xn--bcher-kva.example", "rack-7", "7up.io"]
)
def test_a_host_is_a_name_or_an_address(host: str) -> None:
    assert is_host(host)


@pytest.mark.parametrize(
    "text",
    ["", "-", ".", "a..b", "-a", "a-", ".a", "10.81.0.300", "1.2.3", "7", "a_b", "a" * 64, "a." * 130 + "a"],
)
def test_what_nobody_can_be_called_is_none(text: str) -> None:
    assert not is_host(text)


@given(st.integers(-10, 10**6))
def test_a_port_has_sixteen_bits_and_is_not_0(port: int) -> None:
    assert is_port(str(port)) == (0 < port < 2**16)


@given(st.text(st.sampled_from("ab1.-:[]٣"), max_size=12))
def test_an_authority_is_read_by_others_without_an_error(text: str) -> None:
    if is_authority(text):
        found = urlsplit(f"https://{text}/x")
        assert found.hostname
        assert found.port is None or 0 < found.port < 2**16


@pytest.mark.parametrize("text", ["a:1", "[::1]", "[::1]:443", "10.0.0.1:65535"])
def test_an_authority_may_name_a_port(text: str) -> None:
    assert is_authority(text)


@pytest.mark.parametrize("text", ["a:", "a:0", "a:65536", "[::1", "[::1]443", "[a]", "::1", "a:1:2"])
def test_what_is_no_authority(text: str) -> None:
    assert not is_authority(text)
