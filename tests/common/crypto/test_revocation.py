from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from colonnade.common.crypto.pki.revocation import RevocationList
from colonnade.common.errors import IdentityError

if TYPE_CHECKING:
    from conftest import Federation


@pytest.fixture
def path(tmp_path: Path) -> Path:
    RevocationList.create(tmp_path / "revoked.json")
    return tmp_path / "revoked.json"


@pytest.fixture
def pem(federation: Federation) -> bytes:
    return (federation.folder / "alice/cert.pem").read_bytes()


def test_no_list_revokes_nothing(pem: bytes) -> None:
    none = RevocationList()
    assert none.reason(pem) is None
    assert not none.refresh()
    with pytest.raises(IdentityError, match="no revocation list"):
        none.revoke(pem, "lost")


def test_a_revoked_certificate_is_known_by_either_key(path: Path, pem: bytes, federation: Federation) -> None:
    ours = RevocationList(path)
    assert ours.reason(pem) is None
    ours.revoke(pem, "the laptop was stolen", now=datetime(2026, 3, 1, 12, tzinfo=UTC))
    for listed in (ours, RevocationList(path)):
        assert listed.reason(pem) == "the laptop was stolen"
        assert listed.reason(federation.prints["alice"]) == "the laptop was stolen"
        assert listed.reason(federation.prints["bob"]) is None
    (entry,) = json.loads(path.read_text())["revoked"]
    assert entry.pop("serial")
    assert entry == {
        "fingerprint": federation.prints["alice"],
        "name": "alice",
        "reason": "the laptop was stolen",
        "time": "2026-03-01T12:00:00+00:00",
    }


def test_a_fingerprint_alone_can_be_revoked(path: Path, federation: Federation) -> None:
    ours = RevocationList(path)
    ours.revoke(federation.prints["bob"], "")
    assert ours.reason(federation.prints["bob"]) == "no reason given"
    with pytest.raises(IdentityError, match="not a fingerprint"):
        ours.revoke("bob", "left")


def test_a_first_reason_stays(path: Path, pem: bytes) -> None:
    ours = RevocationList(path)
    first = ours.revoke(pem, "stolen")
    assert ours.revoke(pem, "left") == first
    assert len(json.loads(path.read_text())["revoked"]) == 1


def test_a_change_is_seen_when_looked_for(path: Path, pem: bytes, federation: Federation) -> None:
    ours = RevocationList(path)
    assert not ours.refresh()
    RevocationList(path).revoke(pem, "stolen")
    assert ours.reason(pem) is None
    assert ours.refresh()
    assert ours.reason(pem) == "stolen"
    assert not ours.refresh()
    RevocationList(path).revoke(federation.prints["bob"], "left")
    assert ours.refresh()
    assert ours.reason(pem) == "stolen"
    assert ours.reason(federation.prints["bob"]) == "left"


def test_a_file_put_in_place_with_the_same_size_and_time_is_seen(path: Path, pem: bytes) -> None:
    writer = RevocationList(path)
    writer.revoke(pem, "stolen")
    ours = RevocationList(path)
    status = path.stat()
    other = path.with_name("other.json")
    other.write_text(path.read_text().replace("stolen", "broken"))
    os.utime(other, ns=(status.st_atime_ns, status.st_mtime_ns))
    other.replace(path)
    assert (path.stat().st_size, path.stat().st_mtime_ns) == (status.st_size, status.st_mtime_ns)
    assert ours.refresh()
    assert ours.reason(pem) == "broken"


def test_two_writers_keep_each_others_entries(path: Path, federation: Federation) -> None:
    first, second = RevocationList(path), RevocationList(path)
    first.revoke(federation.prints["alice"], "one")
    second.revoke(federation.prints["bob"], "two")
    read = RevocationList(path)
    assert [read.reason(federation.prints[name]) for name in ("alice", "bob")] == ["one", "two"]


PRINT = "sha256:" + "a" * 64


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        "{}",
        '{"revoked": null}',
        '{"revoked": [[]]}',
        '{"revoked": ["x"]}',
        '{"revoked": [{}]}',
        '{"revoked": [{"fingerprint": "aa"}]}',
        '{"revoked": [{"fingerprint": 7}]}',
        json.dumps({"revoked": [{"fingerprint": PRINT, "reason": 7}]}),
        json.dumps({"revoked": [{"fingerprint": PRINT, "reasons": "x"}]}),
        "\xff",
    ],
)
def test_a_broken_list_fails_closed_until_mended(path: Path, pem: bytes, text: str) -> None:
    ours = RevocationList(path)
    good = path.read_bytes()
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(IdentityError, match="is broken") as caught:
        RevocationList(path)
    assert str(path) in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1
    for _ in range(2):
        with pytest.raises(IdentityError, match="is broken"):
            ours.refresh()
    with pytest.raises(IdentityError, match="is broken"):
        ours.reason(pem)
    with pytest.raises(IdentityError, match="is broken"):
        ours.revoke(pem, "stolen")
    assert path.read_bytes() == text.encode("latin-1")
    path.write_bytes(good)
    assert ours.refresh()
    assert ours.reason(pem) is None


def test_a_list_that_goes_missing_fails_closed(path: Path, pem: bytes) -> None:
    ours = RevocationList(path)
    path.rename(path.with_name("away"))
    with pytest.raises(IdentityError, match="there is no file") as caught:
        ours.refresh()
    assert "revoked" in caught.value.hint
    with pytest.raises(IdentityError, match="there is no file"):
        ours.reason(pem)
    with pytest.raises(IdentityError, match="there is no file"):
        RevocationList(path)
    path.with_name("away").rename(path)
    assert ours.refresh()
    assert ours.reason(pem) is None


def test_a_list_written_by_hand(path: Path) -> None:
    path.write_text(json.dumps({"revoked": [{"fingerprint": PRINT.upper().replace("SHA", "sha")}]}))
    assert RevocationList(path).reason(PRINT) == "no reason given"


def test_creating_never_empties_a_list(path: Path, pem: bytes) -> None:
    RevocationList(path).revoke(pem, "stolen")
    with pytest.raises(IdentityError, match="exists already"):
        RevocationList.create(path)
    assert RevocationList(path).reason(pem) == "stolen"


@pytest.mark.parametrize("open_to_others", ["the file", "its folder"])
def test_a_list_that_others_can_change_fails_closed(path: Path, pem: bytes, open_to_others: str) -> None:
    """They could take a certificate off it."""
    ours = RevocationList(path)
    (path if open_to_others == "the file" else path.parent).chmod(0o777)
    with pytest.raises(IdentityError, match="can be changed by others"):
        RevocationList(path)
    if open_to_others == "the file":
        with pytest.raises(IdentityError, match="can be changed by others"):
            ours.refresh()
        path.chmod(0o644)
        assert ours.refresh() and ours.reason(pem) is None
