from __future__ import annotations

import os
import stat
from contextlib import nullcontext
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from colonnade.common.crypto.pki import files
from colonnade.common.crypto.pki.identity import key_fingerprint, key_pem, load_key, new_key, parse_key, save_key
from colonnade.common.errors import IdentityError

PEM, PKCS8 = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8


def test_a_key_reads_back_and_is_readable_by_its_owner_only(tmp_path: Path) -> None:
    key = new_key()
    mask = os.umask(0)
    try:
        save_key(key, tmp_path / "key.pem")
    finally:
        os.umask(mask)
    assert stat.S_IMODE((tmp_path / "key.pem").stat().st_mode) == 0o600
    assert load_key(tmp_path / "key.pem").private_numbers() == key.private_numbers()
    assert isinstance(key.curve, ec.SECP256R1)
    assert [path.name for path in tmp_path.iterdir()] == ["key.pem"]


def test_a_key_is_not_overwritten_by_default(tmp_path: Path) -> None:
    path = tmp_path / "key.pem"
    save_key(new_key(), path)
    before = path.read_bytes()
    with pytest.raises(IdentityError, match="exists already") as caught:
        save_key(new_key(), path)
    assert caught.value.hint
    assert path.read_bytes() == before
    other = new_key()
    save_key(other, path, overwrite=True)
    assert path.read_bytes() == key_pem(other)
    assert [path.name for path in tmp_path.iterdir()] == ["key.pem"]


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "key.pem"
    save_key(new_key(), path)
    before = path.read_bytes()

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(IdentityError, match="No space left"):
        save_key(new_key(), path, overwrite=True)
    assert path.read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["key.pem"]


def test_a_folder_where_a_file_lies(tmp_path: Path) -> None:
    (tmp_path / "alice").write_text("")
    with pytest.raises(IdentityError, match="cannot make"):
        files.make_folder(tmp_path / "alice")


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(IdentityError, match="cannot write"):
        save_key(new_key(), tmp_path / "nowhere" / "key.pem")


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o601, 0o644, 0o666])
def test_a_key_that_others_can_read_is_refused(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "key.pem"
    save_key(new_key(), path)
    path.chmod(mode)
    with pytest.raises(IdentityError, match=f"mode {mode:04o}") as caught:
        load_key(path)
    assert f"chmod 600 {path}" in caught.value.hint
    path.chmod(0o400)
    load_key(path)


@pytest.mark.parametrize(
    ("owner", "us", "mode", "fine"),
    [
        (0, 1000, 0o640, True),  # a mounted secret reaches us through our group
        (0, 1000, 0o644, False),
        (0, 1000, 0o660, False),
        (0, 0, 0o640, False),
        (1000, 1000, 0o640, False),
        (1000, 1000, 0o600, True),
    ],
)
def test_the_group_may_read_only_files_mounted_by_root(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: int, us: int, mode: int, fine: bool
) -> None:
    path = tmp_path / "key.pem"
    save_key(new_key(), path)
    status = os.stat_result((0o100000 | mode, 1, 1, 1, owner, owner, 1, 0, 0, 0))
    folder = os.stat_result((0o040755, 1, 1, 1, owner, owner, 1, 0, 0, 0))
    monkeypatch.setattr(os, "fstat", lambda _: status)
    monkeypatch.setattr(os, "stat", lambda *_, **__: folder)
    monkeypatch.setattr(os, "geteuid", lambda: us)
    with nullcontext() if fine else pytest.raises(IdentityError, match="by others"):
        load_key(path)


@pytest.mark.parametrize("mode", [0o777, 0o757])
def test_no_key_is_made_in_a_folder_that_others_can_change(tmp_path: Path, mode: int) -> None:
    tmp_path.chmod(mode)
    with pytest.raises(IdentityError, match=rf"can be changed by others \(mode {mode:04o}\)") as caught:
        save_key(new_key(), tmp_path / "key.pem")
    assert f"chmod go-w {tmp_path}" in caught.value.hint and not list(tmp_path.iterdir())
    tmp_path.chmod(0o1777)  # as /tmp: nobody changes files of others
    save_key(new_key(), tmp_path / "key.pem")


def test_keys_of_other_kinds_are_refused() -> None:
    locked = new_key().private_bytes(PEM, PKCS8, serialization.BestAvailableEncryption(b"secret"))
    big = rsa.generate_private_key(65537, 1024).private_bytes(PEM, PKCS8, serialization.NoEncryption())
    wide = ec.generate_private_key(ec.SECP384R1())
    for pem, why in [
        (locked, "has a password"),
        (big, "not ECDSA on P-256"),
        (key_pem(wide), "not ECDSA on P-256"),
        (b"", "no private key"),
        (b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n", "no private key"),
        (key_pem(new_key())[:-60], "no private key"),
    ]:
        with pytest.raises(IdentityError, match=why) as caught:
            parse_key(pem, "my.pem")
        assert "my.pem" in str(caught.value)
        assert caught.value.hint


def test_a_missing_key_gives_the_command_to_make_it(tmp_path: Path) -> None:
    with pytest.raises(IdentityError, match="there is no file") as caught:
        load_key(tmp_path / "key.pem", hint="make it")
    assert caught.value.hint == "make it"


def test_fingerprints_of_keys_differ() -> None:
    first, second = new_key().public_key(), new_key().public_key()
    assert key_fingerprint(first) == key_fingerprint(first) != key_fingerprint(second)
    assert len(key_fingerprint(first)) == len("sha256:") + 64
