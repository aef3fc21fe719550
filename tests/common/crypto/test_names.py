from __future__ import annotations

import string

import pytest
from cryptography import x509
from hypothesis import example, given
from hypothesis import strategies as st

from colonnade.common.crypto.pki.certificates import host
from colonnade.common.crypto.pki.names import check_name, check_party_name, dns_name, named_by
from colonnade.common.errors import IdentityError

ENDS = string.ascii_lowercase + string.digits
MIDDLE = ENDS + "-_"


def allowed(text: str) -> bool:
    inside = set(text) <= set(MIDDLE) and 1 <= len(text) <= 63
    return inside and text[0] in ENDS and text[-1] in ENDS and text != "ca"


@given(st.one_of(st.text(max_size=70), st.text(MIDDLE, max_size=70)))
@example("")
@example("alice\n")
@example("a" * 63)
@example("a" * 64)
@example("a_")
@example("-a")
@example("é")
@example("ca")
def test_exactly_the_allowed_names_pass(text: str) -> None:
    if allowed(text):
        assert check_name(text) == text
        assert named_by([dns_name(text), "example.org"]) == [text]
    else:
        with pytest.raises(IdentityError) as caught:
            check_name(text)
        assert caught.value.hint
        assert len(str(caught.value).splitlines()) == 1


def test_no_party_is_named_as_the_server() -> None:
    assert check_name("server") == "server"
    with pytest.raises(IdentityError, match="server's name"):
        check_party_name("server")


@pytest.mark.parametrize("text", ["10.0.0.7", "::1", "fe80::1"])
def test_an_address_is_an_address(text: str) -> None:
    assert isinstance(host(text), x509.IPAddress)


@pytest.mark.parametrize("text", ["localhost", "FL.Example.org", "fl_server", "a.b-c.d"])
def test_a_name_is_a_name(text: str) -> None:
    assert host(text) == x509.DNSName(text.lower())


@pytest.mark.parametrize(
    "text",
    [
        "",
        "*.example.org",
        "10.0.0.256",
        "10.0.0.7:443",
        "https://x",
        "a..b",
        "-a.org",
        "a" * 64,
        "x." * 127 + "xx",
    ],
)
def test_invalid_hosts_are_refused(text: str) -> None:
    with pytest.raises(IdentityError, match="neither a host name nor an IP address"):
        host(text)


@pytest.mark.parametrize("text", ["alice.colonnade", "Alice.Colonnade", "a.b.colonnade"])
def test_a_host_cannot_pose_as_a_party(text: str) -> None:
    with pytest.raises(IdentityError, match="is reserved for parties"):
        host(text)
