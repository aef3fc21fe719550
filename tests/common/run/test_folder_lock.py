"""The lock on a folder: one process at a time, whatever another one removes meanwhile."""

from __future__ import annotations

import fcntl
import os
import platform
import threading
from pathlib import Path

import pytest

from colonnade.common.errors import EnvironmentFault
from colonnade.launcher.folder_lock import hold, is_held, locked_folder
from colonnade.search.folder import SearchFolder


def test_it_names_its_holder(tmp_path: Path) -> None:
    with hold(tmp_path / ".lock"):
        assert is_held(tmp_path)
        named = rf"another process \({os.getpid()} on {platform.node()}\) works in {tmp_path}$"
        with pytest.raises(EnvironmentFault, match=named), hold(tmp_path / ".lock"):
            pass
    assert not is_held(tmp_path)
    with hold(tmp_path / ".lock"):
        pass


def test_who_waited_for_a_lock_that_was_removed_holds_a_new_one(tmp_path: Path) -> None:
    """Two processes would else hold one folder: the second the removed file, the third a new one."""
    first, release = hold(tmp_path / ".lock"), threading.Event()
    first.__enter__()

    def end() -> None:
        release.wait()
        (tmp_path / ".lock").unlink()
        first.__exit__(None, None, None)

    other = threading.Thread(target=end)
    other.start()
    threading.Timer(0.1, release.set).start()
    with hold(tmp_path / ".lock"), pytest.raises(EnvironmentFault, match="another process"), hold(tmp_path / ".lock"):
        pass
    other.join()


def test_a_run_that_began_while_we_waited_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flock = fcntl.flock

    def begun(file: int, how: int) -> None:
        (tmp_path / "events.jsonl").touch()
        flock(file, how)

    monkeypatch.setattr(fcntl, "flock", begun)
    with pytest.raises(EnvironmentFault, match="holds a run already"), locked_folder(tmp_path, ""):
        pass


def test_a_file_system_without_locks_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_file: int, _how: int) -> None:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(EnvironmentFault, match="Function not implemented"), locked_folder(tmp_path / "run", ""):
        pass
    with pytest.raises(EnvironmentFault, match="Function not implemented"), SearchFolder(tmp_path / "s", "cv").locked():
        pass
