from __future__ import annotations

import os
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from colonnade.common.crypto.pki.authority import make_request
from colonnade.common.crypto.pki.certificates import certificate_pem, read_certificate
from colonnade.common.crypto.pki.identity import IdentityFiles, load_identity, load_key
from colonnade.common.errors import IdentityError

if TYPE_CHECKING:
    from conftest import Federation, Forge

LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)


@pytest.fixture
def alice(federation: Federation, tmp_path: Path) -> Path:
    """A copy of one identity, to spoil."""
    return Path(shutil.copytree(federation.folder / "alice", tmp_path / "alice"))


def refusal(where: Path | IdentityFiles, now: datetime | None = None) -> tuple[str, str]:
    with pytest.raises(IdentityError) as caught:
        load_identity(where, now=now)
    assert len(str(caught.value).splitlines()) == 1
    return str(caught.value), caught.value.hint


def test_an_identity_is_read_from_a_folder_or_files(alice: Path, federation: Federation) -> None:
    identity = load_identity(alice)
    assert identity.name == "alice"
    assert identity.fingerprint == federation.prints["alice"]
    assert identity.key_pem == (alice / "key.pem").read_bytes()
    assert identity.chain_pem == (alice / "cert.pem").read_bytes()
    assert identity.ca_pem == (federation.folder / "ca/cert.pem").read_bytes()
    assert load_identity(IdentityFiles.in_folder(alice)) == identity
    assert "BEGIN" not in repr(identity)


@pytest.mark.parametrize(
    ("file", "command"),
    [("key.pem", "certs request NAME"), ("cert.pem", "certs sign request.csr"), ("ca.pem", "certs ca DIR")],
)
def test_a_missing_file_names_the_command_that_makes_it(alice: Path, file: str, command: str) -> None:
    (alice / file).unlink()
    message, hint = refusal(alice)
    assert message == f"there is no file {alice / file}"
    assert f"colonnade {command}" in hint


@pytest.mark.parametrize("file", ["key.pem", "cert.pem", "ca.pem"])
def test_a_file_of_noise_is_named(alice: Path, file: str) -> None:
    (alice / file).write_bytes(b"noise")
    message, _ = refusal(alice)
    assert str(alice / file) in message


def test_a_folder_where_a_file_should_be(alice: Path) -> None:
    (alice / "cert.pem").unlink()
    (alice / "cert.pem").mkdir()
    message, _ = refusal(alice)
    assert message.startswith(f"cannot read {alice / 'cert.pem'}")


def test_key_and_certificate_must_be_a_pair(alice: Path, federation: Federation) -> None:
    shutil.copy(federation.folder / "bob/key.pem", alice / "key.pem")
    message, _ = refusal(alice)
    assert "does not belong to the certificate" in message


def test_the_authority_must_have_signed_it(alice: Path, strangers: Federation, federation: Federation) -> None:
    ours = (alice / "ca.pem").read_bytes()
    theirs = (strangers.folder / "ca/cert.pem").read_bytes()
    (alice / "ca.pem").write_bytes(theirs)
    message, hint = refusal(alice)
    assert "not signed by the authority" in message
    assert "cert.pem" in hint
    (alice / "ca.pem").write_bytes(theirs + ours)
    assert load_identity(alice).name == "alice"


def test_a_partys_certificate_is_no_authority(alice: Path, federation: Federation, forge: Forge) -> None:
    bob = federation.folder / "bob"
    issuer = read_certificate((bob / "cert.pem").read_bytes()).subject, load_key(bob / "key.pem")
    key = load_key(alice / "key.pem")
    (alice / "cert.pem").write_bytes(forge(["alice"], ["alice.colonnade"], key=key, issuer=issuer))
    shutil.copy(bob / "cert.pem", alice / "ca.pem")
    message, _ = refusal(alice)
    assert "not signed by the authority" in message


def test_a_readable_key_is_refused(alice: Path) -> None:
    (alice / "key.pem").chmod(0o644)
    message, hint = refusal(alice)
    assert "can be read or changed by others" in message
    assert "chmod 600" in hint


@pytest.mark.parametrize(("name", "mode"), [("", 0o777), ("", 0o703), ("cert.pem", 0o646), ("ca.pem", 0o666)])
def test_what_others_can_change_is_refused(alice: Path, name: str, mode: int) -> None:
    (alice / name).chmod(mode)
    message, hint = refusal(alice)
    assert message == f"{alice / name} can be changed by others (mode {mode:04o})"
    assert f"chmod go-w {alice / name}" in hint


def test_what_a_link_leads_to_is_refused_too(alice: Path, tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    (alice / "ca.pem").rename(shared / "ca.pem")
    (alice / "ca.pem").symlink_to(shared / "ca.pem")
    assert load_identity(alice).name == "alice"
    shared.chmod(0o777)
    assert refusal(alice)[0].startswith(f"{shared} can be changed by others")


@pytest.mark.skipif(os.geteuid() != 0, reason="gives files to other users")
@pytest.mark.parametrize("name", ["", "key.pem", "cert.pem", "ca.pem"])
def test_files_of_another_user_are_refused_and_those_of_a_shared_group(alice: Path, name: str) -> None:
    os.chown(alice / name, 0, 10001)
    assert load_identity(alice).name == "alice"
    if name != "key.pem":  # of which the group may do nothing
        before = (alice / name).stat().st_mode
        (alice / name).chmod(0o775)
        assert "can be changed by others (mode 0775)" in refusal(alice)[0]
        os.chown(alice / name, 0, 0)  # root's own group
        assert load_identity(alice).name == "alice"
        (alice / name).chmod(before & 0o777)
    os.chown(alice / name, 10001, 0)
    message, hint = refusal(alice)
    assert message == f"{alice / name} belongs to another user, who can change it" and "chown 0" in hint


def test_an_expired_certificate_gives_its_date_of_expiry(federation: Federation, tmp_path: Path) -> None:
    soon = datetime.now(UTC) + timedelta(days=2)
    late = federation.issue(tmp_path / "late", "alice", days=1)
    assert load_identity(late).name == "alice"
    message, hint = refusal(late, now=soon)
    assert "the certificate of 'alice'" in message
    assert "expired on" in message
    assert f"colonnade certs renew {late}" in hint


def test_a_certificate_from_the_future_gives_its_first_date(alice: Path) -> None:
    message, hint = refusal(alice, now=LONG_AGO)
    assert "holds from" in message
    assert "2020-01-01 00:00 UTC" in message
    assert "clock" in hint


def test_the_authority_must_hold_too(federation: Federation, alice: Path) -> None:
    message, _ = refusal(alice, now=datetime.now(UTC) + timedelta(days=31))
    assert f"the authority {alice / 'ca.pem'} expired" in message


def test_an_identity_signed_again_is_another(federation: Federation, alice: Path) -> None:
    before = load_identity(alice)
    again = federation.authority.sign(make_request(load_key(alice / "key.pem"), "alice"))
    (alice / "cert.pem").write_bytes(certificate_pem(again))
    assert load_identity(alice).fingerprint != before.fingerprint
