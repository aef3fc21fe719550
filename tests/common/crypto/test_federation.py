from __future__ import annotations

from pathlib import Path

import pytest

from colonnade.common.crypto.pki.authority import Authority, make_federation
from colonnade.common.crypto.pki.certificates import describe, fingerprint
from colonnade.common.crypto.pki.identity import load_identity
from colonnade.common.errors import IdentityError


def test_a_federation_in_one_step(tmp_path: Path) -> None:
    folder = tmp_path / "run" / "certs"
    prints = make_federation(folder, ["alice", "bob"], ["fl.example.org"])
    assert list(prints) == ["server", "alice", "bob"]
    assert sorted(path.name for path in folder.iterdir()) == ["alice", "bob", "ca", "server"]
    for name, pinned in prints.items():
        identity = load_identity(folder / name)
        assert (identity.name, identity.fingerprint) == (name, pinned)
    Authority.load(folder / "ca")
    assert describe((folder / "server/cert.pem").read_bytes()).hosts == ("fl.example.org",)
    assert len(set(prints.values()) | {fingerprint((folder / "ca/cert.pem").read_bytes())}) == 4
    assert folder.stat().st_mode & 0o077 == 0
    assert all(path.stat().st_mode & 0o077 == 0 for path in folder.glob("*/key.pem"))
    assert len({path.read_bytes() for path in folder.glob("*/key.pem")}) == 4
    assert [path.name for path in folder.parent.iterdir()] == ["certs"]


def test_a_folder_in_use_stays_as_it_is(tmp_path: Path) -> None:
    make_federation(tmp_path / "certs", ["alice"])
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.pem")}
    with pytest.raises(IdentityError, match="cannot make") as caught:
        make_federation(tmp_path / "certs", ["alice"])
    assert "new or empty" in caught.value.hint
    assert {path: path.read_bytes() for path in tmp_path.rglob("*.pem")} == before
    assert [path.name for path in tmp_path.iterdir()] == ["certs"]


@pytest.mark.parametrize(
    ("parties", "hosts", "why"),
    [
        (["alice", "alice"], [], "named twice"),
        (["server"], [], "server's name"),
        (["ca"], [], "authority's name"),
        (["Alice"], [], "not a name"),
        (["../alice"], [], "not a name"),
        ([""], [], "not a name"),
        (["alice"], ["*.org"], "neither a host name"),
    ],
)
def test_wrong_names_leave_nothing_behind(tmp_path: Path, parties: list[str], hosts: list[str], why: str) -> None:
    with pytest.raises(IdentityError, match=why):
        make_federation(tmp_path / "certs", parties, hosts)
    assert list(tmp_path.iterdir()) == []
