from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from colonnade.common.crypto.pki.certificates import fingerprint
from colonnade.common.crypto.pki.revocation import RevocationList, verify_peer
from colonnade.common.errors import IdentityError, RefusedError

if TYPE_CHECKING:
    from conftest import Federation, Forge


@pytest.fixture
def revoked(tmp_path: Path) -> RevocationList:
    return RevocationList.create(tmp_path / "revoked.json")


def pem_of(federation: Federation, name: str) -> bytes:
    return (federation.folder / name / "cert.pem").read_bytes()


def refusal(pem: bytes, name: str, pinned: dict[str, str], revoked: RevocationList) -> str:
    with pytest.raises(RefusedError) as caught:
        verify_peer(pem, name, pinned, revoked)
    assert caught.value.hint
    assert len(str(caught.value).splitlines()) == 1
    return str(caught.value)


@pytest.mark.parametrize("name", ["alice", "bob", "server"])
def test_a_member_is_let_in(federation: Federation, revoked: RevocationList, name: str) -> None:
    verify_peer(pem_of(federation, name), name, federation.prints, revoked)
    verify_peer(pem_of(federation, name), name, federation.prints, RevocationList())


def test_an_unknown_party_with_the_nearest_name(federation: Federation, revoked: RevocationList) -> None:
    message = refusal(pem_of(federation, "alice"), "alise", federation.prints, revoked)
    assert message == "no party 'alise' is in the roster (did you mean 'alice'?)"
    assert "x\\n" in refusal(pem_of(federation, "alice"), "x\n" * 5000, federation.prints, revoked)


def test_a_certificate_of_another_member(federation: Federation, revoked: RevocationList) -> None:
    message = refusal(pem_of(federation, "bob"), "alice", federation.prints, revoked)
    assert message == "the certificate of 'bob' was shown by one who claims to be 'alice'"


def test_signed_is_not_enough(
    federation: Federation, strangers: Federation, revoked: RevocationList, forge: Forge
) -> None:
    invented = forge(["alice"], ["alice.colonnade"])
    for pem in (invented, pem_of(strangers, "alice")):
        message = refusal(pem, "alice", federation.prints, revoked)
        assert fingerprint(pem)[:19] in message
        assert federation.prints["alice"][:19] in message
        assert "pins" in message


def test_a_revoked_member_at_the_next_look(federation: Federation, revoked: RevocationList) -> None:
    pem = pem_of(federation, "alice")
    verify_peer(pem, "alice", federation.prints, revoked)
    assert revoked.path is not None
    RevocationList(revoked.path).revoke(pem, "the laptop was stolen")
    message = refusal(pem, "alice", federation.prints, revoked)
    assert message.endswith("of 'alice' is revoked: the laptop was stolen")
    verify_peer(pem_of(federation, "bob"), "bob", federation.prints, revoked)


def test_a_broken_list_admits_no_party(federation: Federation, revoked: RevocationList) -> None:
    assert revoked.path is not None
    revoked.path.write_text("{")
    with pytest.raises(IdentityError, match="is broken"):
        verify_peer(pem_of(federation, "alice"), "alice", federation.prints, revoked)


@pytest.mark.parametrize("pem", [b"", b"noise"])
def test_noise_is_a_refusal(federation: Federation, revoked: RevocationList, pem: bytes) -> None:
    assert "bad certificate" in refusal(pem, "alice", federation.prints, revoked)


def test_an_ambiguous_certificate_is_a_refusal(federation: Federation, revoked: RevocationList, forge: Forge) -> None:
    pem = forge(["alice"], ["alice.colonnade", "bob.colonnade"])
    assert "not for one party" in refusal(pem, "alice", {"alice": fingerprint(pem)}, revoked)
