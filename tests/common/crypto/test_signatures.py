"""Signatures are verified against the certificates that the roster pins."""

from __future__ import annotations

import base64
import dataclasses
from typing import TYPE_CHECKING

import pytest
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509 import load_pem_x509_certificate
from hypothesis import given
from hypothesis import strategies as st

from colonnade.common.crypto.pki.certificates import fingerprint, read_certificate
from colonnade.common.crypto.pki.names import SERVER
from colonnade.common.crypto.signatures import ForgedError, Signer, Verifier
from colonnade.common.errors import ConfigError

if TYPE_CHECKING:
    from conftest import Federation, Forge

SAID = b"what was said"


def der_of(pem: bytes) -> bytes:
    return load_pem_x509_certificate(pem).public_bytes(serialization.Encoding.DER)


def pem_of(der: bytes) -> bytes:
    return b"-----BEGIN CERTIFICATE-----\n" + base64.encodebytes(der) + b"-----END CERTIFICATE-----\n"


@pytest.mark.parametrize("name", [SERVER, "alice"])
def test_a_members_signature_verifies(federation: Federation, name: str) -> None:
    signer = Signer(federation.identity(name))
    Verifier(name, signer.certificate, federation.prints[name]).check("this", SAID, signer.sign(SAID))


def test_a_signature_verifies_as_by_the_library_alone(federation: Federation) -> None:
    identity = federation.identity("alice")
    key = load_pem_x509_certificate(identity.chain_pem).public_key()
    assert isinstance(key, ec.EllipticCurvePublicKey)
    key.verify(Signer(identity).sign(SAID), SAID, ec.ECDSA(hashes.SHA256()))


def test_without_an_identity_nothing_is_signed() -> None:
    assert (Signer(None).certificate, Signer(None).sign(SAID)) == (b"", b"")


@pytest.mark.parametrize(
    ("content", "signature"),
    [
        (b"what was not said", lambda ours, theirs: ours),
        (SAID, lambda ours, theirs: theirs),
        (SAID, lambda ours, theirs: b""),
        (SAID, lambda ours, theirs: b"noise"),
        (SAID, lambda ours, theirs: ours[:-1]),
        (SAID, lambda ours, theirs: ours + b"\0"),
    ],
    ids=["other words", "another's", "none", "noise", "cut short", "longer"],
)
def test_anything_else_is_forged(federation: Federation, content: bytes, signature) -> None:
    ours, theirs = (Signer(federation.identity(name)).sign(SAID) for name in ("alice", "bob"))
    verifier = Verifier("alice", federation.identity("alice").chain_pem, federation.prints["alice"])
    with pytest.raises(ForgedError, match=r"^the word is not signed by 'alice', or was for another session$") as forged:
        verifier.check("the word", content, signature(ours, theirs))
    assert forged.value.hint


@given(place=st.integers(0, 2**16), bit=st.integers(0, 7))
def test_no_bit_of_a_signature_can_change(signed: tuple[Verifier, bytes], place: int, bit: int) -> None:
    verifier, signature = signed
    altered = bytearray(signature)
    altered[place % len(altered)] ^= 1 << bit
    with pytest.raises(ForgedError):
        verifier.check("this", SAID, bytes(altered))


@pytest.fixture(scope="module")
def signed(federation: Federation) -> tuple[Verifier, bytes]:
    """Alice's verifier, and what she signed."""
    signer = Signer(federation.identity("alice"))
    return Verifier("alice", signer.certificate, federation.prints["alice"]), signer.sign(SAID)


@pytest.mark.parametrize(
    ("whose", "said"),
    [
        (lambda ours, strangers: ours.identity("bob").chain_pem, "the certificate sha256:.* of 'bob', the roster pins"),
        (lambda ours, strangers: strangers.identity("alice").chain_pem, "of 'alice', the roster pins"),
        (lambda ours, strangers: b"", "'alice': a bad certificate: the certificate forwarded for 'alice' is not"),
        (lambda ours, strangers: b"noise", "'alice': a bad certificate"),
    ],
    ids=["another member's", "another of that name", "none", "noise"],
)
def test_another_certificate_than_the_pinned_one(
    federation: Federation, strangers: Federation, whose, said: str
) -> None:
    with pytest.raises(ForgedError, match=said) as forged:
        Verifier("alice", whose(federation, strangers), federation.prints["alice"])
    assert "'alice'" in str(forged.value) and forged.value.hint


def test_a_pinned_certificate_of_another_member_is_not_alices(federation: Federation) -> None:
    """A roster that pins bob's certificate for alice does not let him sign for her."""
    with pytest.raises(ForgedError, match=r"^'alice' comes with the certificate .* of 'bob'"):
        Verifier("alice", federation.identity("bob").chain_pem, federation.prints["bob"])


def test_a_certificate_that_speaks_for_two(federation: Federation, forge: Forge) -> None:
    pem = forge(["alice"], ["alice.colonnade", "bob.colonnade"])
    with pytest.raises(ForgedError, match="not for one party"):
        Verifier("alice", pem, fingerprint(pem))


@given(data=st.data())
def test_no_bit_of_a_certificate_can_change(signed_der: tuple[bytes, str], data: st.DataObject) -> None:
    der, pin = signed_der
    place, bit = data.draw(st.integers(0, len(der) - 1)), data.draw(st.integers(0, 7))
    altered = der[:place] + bytes([der[place] ^ 1 << bit]) + der[place + 1 :]
    with pytest.raises(ForgedError):
        Verifier("alice", pem_of(altered), pin)


@pytest.fixture(scope="module")
def signed_der(federation: Federation) -> tuple[bytes, str]:
    """Alice's certificate in DER, and its fingerprint."""
    return der_of(federation.identity("alice").chain_pem), federation.prints["alice"]


def test_a_certificate_with_an_unreadable_key_counts_as_forged(federation: Federation) -> None:
    ec_key, unknown = bytes.fromhex("06072a8648ce3d0201"), bytes.fromhex("06072a8648ce3d0207")
    pem = pem_of(der_of(federation.identity("alice").chain_pem).replace(ec_key, unknown))
    with pytest.raises(UnsupportedAlgorithm):
        read_certificate(pem).public_key()
    with pytest.raises(ForgedError, match="of 'alice', the roster pins"):
        Verifier("alice", pem, federation.prints["alice"])


@pytest.mark.parametrize(("name", "where"), [("alice", r"federation\.parties\.alice"), (SERVER, r"federation\.server")])
def test_without_a_pin_no_signature_is_accepted(federation: Federation, name: str, where: str) -> None:
    with pytest.raises(ConfigError, match=rf"^{where}: no certificate fingerprint$") as refused:
        Verifier(name, federation.identity(name).chain_pem, "")
    assert "certs show" in refused.value.hint


def test_an_error_does_not_show_the_key(federation: Federation) -> None:
    broken = dataclasses.replace(federation.identity("alice"), key_pem=b"-----BEGIN PRIVATE KEY-----\nsecret\n")
    with pytest.raises(Exception, match=r"key\.pem") as refused:
        Signer(broken)
    assert "secret" not in str(refused.value)
