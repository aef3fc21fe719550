from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from colonnade.common.run.files import rehearsal, write_durably
from colonnade.simulation.federation import RunFiles
from tests.support.federation import config, federate


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


def test_a_simulation_does_not_wait_for_the_disk_and_all_else_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = list[int]()
    monkeypatch.setattr(os, "fsync", waits.append)
    cfg = config({"name": "split", "embedding": 4}, "federation.epochs=1")
    federate(cfg, files=RunFiles(tmp_path / "run", cfg, tmp_path), save=True)
    assert {path.suffix for path in (tmp_path / "run").rglob("*")} >= {".yaml", ".json", ".safetensors"} and not waits
    write_durably(tmp_path / "a", b"new")
    assert len(waits) == 2  # the content, and the name


def test_threads_of_a_rehearsal_belong_to_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    waits = list[int]()
    monkeypatch.setattr(os, "fsync", waits.append)
    with rehearsal():
        asyncio.run(asyncio.to_thread(write_durably, tmp_path / "a", b"new"))
    assert not waits
