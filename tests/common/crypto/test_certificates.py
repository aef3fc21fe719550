from __future__ import annotations

import hashlib
import ssl
import string
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from cryptography import x509
from hypothesis import example, given
from hypothesis import strategies as st

from colonnade.common.crypto.pki.certificates import (
    check_validity,
    describe,
    fingerprint,
    host,
    name_of,
    read_certificate,
    short,
)
from colonnade.common.crypto.pki.names import check_fingerprint, check_name, check_party_name, dns_name, named_by
from colonnade.common.errors import IdentityError

if TYPE_CHECKING:
    from conftest import Federation, Forge


def test_a_fingerprint_is_the_hash_of_the_certificate(federation: Federation) -> None:
    pem = (federation.folder / "alice/cert.pem").read_bytes()
    expected = "sha256:" + hashlib.sha256(ssl.PEM_cert_to_DER_cert(pem.decode())).hexdigest()
    assert fingerprint(pem) == fingerprint(read_certificate(pem)) == expected == federation.prints["alice"]
    assert check_fingerprint(expected.upper().replace("SHA", "sha")) == expected
    assert expected.startswith(short(expected)[:-1])


@pytest.mark.parametrize("text", ["", "sha256:", "a" * 64, "sha256:" + "g" * 64, "sha256:" + "a" * 64 + "\n"])
def test_invalid_fingerprints(text: str) -> None:
    with pytest.raises(IdentityError, match="not a fingerprint"):
        check_fingerprint(text)


def test_a_certificate_in_words(federation: Federation) -> None:
    shown = describe((federation.folder / "server/cert.pem").read_bytes())
    assert shown.subject == "server"
    assert shown.issuer.startswith("Colonnade CA ")
    assert shown.fingerprint == federation.prints["server"]
    assert int(shown.serial, 16) > 0
    assert shown.valid_from < datetime.now(UTC) < shown.valid_until
    assert shown.hosts == ("localhost", "127.0.0.1", "::1")
    assert describe((federation.folder / "ca/cert.pem").read_bytes()).subject == shown.issuer


@pytest.mark.parametrize(
    ("subject", "dns"),
    [
        (["alice"], None),
        (["alice"], []),
        (["alice"], ["bob.colonnade"]),
        (["alice"], ["alice.colonnade", "bob.colonnade"]),
        (["alice"], ["alice.colonnade", "alice.colonnade"]),
        (["alice", "bob"], ["alice.colonnade"]),
        (["alice", "bob"], ["alice.colonnade", "bob.colonnade"]),
        ([], ["alice.colonnade"]),
        (["Alice"], ["Alice.colonnade"]),
        (["alice\x00"], ["alice.colonnade"]),
        (["alice"], b"noise"),
    ],
)
def test_a_certificate_speaks_for_one_name_or_none(
    forge: Forge, subject: list[str], dns: list[str] | bytes | None
) -> None:
    with pytest.raises(IdentityError):
        name_of(forge(subject, dns))


def test_a_certificate_cannot_steer_a_terminal(forge: Forge) -> None:
    shown = describe(forge(["alice\x1b[2J\n"], ["a\nb.org"]))
    assert shown.subject == "alice?[2J?"
    assert shown.hosts == ("a?b.org",)


def test_the_forged_certificates_fail_for_their_names_only(forge: Forge) -> None:
    assert name_of(forge(["alice"], ["alice.colonnade"])) == "alice"


@pytest.mark.parametrize("pem", [b"", b"noise", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"])
def test_invalid_certificates(pem: bytes) -> None:
    with pytest.raises(IdentityError, match=r"their\.pem is not a certificate"):
        read_certificate(pem, "their.pem")
    with pytest.raises(IdentityError):
        name_of(pem)


def test_validity_gives_both_dates(federation: Federation) -> None:
    certificate = read_certificate((federation.folder / "alice/cert.pem").read_bytes())
    begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    second = timedelta(seconds=1)
    for now in (begin, end, None):
        check_validity(certificate, "it", now, hint="renew")
    with pytest.raises(IdentityError, match=f"it expired on {end:%Y-%m-%d %H:%M} UTC") as caught:
        check_validity(certificate, "it", end + second, hint="renew")
    assert caught.value.hint == "renew"
    with pytest.raises(IdentityError, match=f"it holds from {begin:%Y-%m-%d %H:%M} UTC only") as caught:
        check_validity(certificate, "it", begin - second, hint="renew")
    assert "clock" in caught.value.hint


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
