from __future__ import annotations

import hashlib
import ssl
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from colonnade.common.crypto.pki.certificates import (
    check_validity,
    describe,
    fingerprint,
    name_of,
    read_certificate,
    short,
)
from colonnade.common.crypto.pki.names import check_fingerprint
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
