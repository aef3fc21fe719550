from __future__ import annotations

import os
from pathlib import Path

import pytest

from colonnade.common.run.files import write_durably


def test_a_file_is_replaced_whole(tmp_path: Path) -> None:
    write_durably(tmp_path / "a", b"old")
    write_durably(tmp_path / "a", b"new and longer")
    assert (tmp_path / "a").read_bytes() == b"new and longer"
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_durably(tmp_path / "a", b"old")

    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_durably(tmp_path / "a", b"new")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"a": b"old"}


def test_a_file_for_its_owner_alone_is_so_from_the_beginning(tmp_path: Path) -> None:
    write_durably(tmp_path / "a", b"secret", 0o600)
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o600
