"""Names and format of run folders: other formats are refused by all readers; one process at a time has the lock."""

from __future__ import annotations

import fcntl
import json
import os
import platform
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from unittest.mock import Mock

import pytest

from colonnade.cli.read.export import export
from colonnade.cli.read.ledger import ledger
from colonnade.common.errors import EnvironmentFault, InputError
from colonnade.common.run.run_folder import FORMAT, MemberFolder, PartyFolder, RunFolder, read_record
from colonnade.common.version import VERSION
from colonnade.launcher.federation import relaunch
from colonnade.launcher.folder_lock import hold, is_held, locked_folder
from colonnade.reports.explanation.trained import open_run
from colonnade.reports.records.run import read_run
from colonnade.search.folder import SearchFolder
from colonnade_lab.attacks.run import open_run as open_captured

REFUSED = {
    "newer": (
        {"run": "1", "format": FORMAT + 1, "version": "7.8.9"},
        f"the folder is of format {FORMAT + 1}, and colonnade {VERSION} reads up to {FORMAT}",
        "written by colonnade 7.8.9: take that version, or a newer one",
    ),
    "0.1.0": (
        {"run": "1", "federation": "f"},
        f"the folder was written by colonnade 0.1.0, and {VERSION} reads runs of 0.2.0 and later",
        "with colonnade 0.2.0",
    ),
}


def locked(folder: Path) -> None:
    with locked_folder(None, "", resume=folder):
        pass


@pytest.mark.slow
@pytest.mark.parametrize(
    "read",
    [
        locked,
        read_run,
        open_run,
        open_captured,
        lambda folder: export(folder, "party1", None, None),
        lambda folder: ledger(folder, check=False, head=True),
        lambda folder: relaunch(Mock(), folder),
    ],
    ids=["lock", "report", "explain", "attack", "export", "ledger", "up"],
)
@pytest.mark.parametrize(
    ("file", "version"),
    [("run.json", "newer"), ("simulated.json", "newer"), ("pinned.json", "newer"), ("run.json", "0.1.0")],
)
def test_a_folder_of_another_format_is_refused(
    tmp_path: Path, file: str, version: str, read: Callable[[Path], object]
) -> None:
    record, words, hint = REFUSED[version]
    (tmp_path / "events.jsonl").touch()
    (tmp_path / file).write_text(json.dumps(record))
    before = sorted(tmp_path.iterdir())
    with pytest.raises(InputError, match=words) as refused:
        read(tmp_path)
    assert f"{tmp_path / file}: " in str(refused.value)
    assert hint in refused.value.hint
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize("format", ["2", 1.0, True, None, -1, 0])
def test_a_format_that_is_no_number_of_a_format_is_refused(tmp_path: Path, format: object) -> None:
    (tmp_path / "run.json").write_text(json.dumps({"run": "1", "format": format}))
    with pytest.raises(InputError, match="is of format") as refused:
        MemberFolder(tmp_path).refuse_unreadable()
    assert "written by a newer colonnade" in refused.value.hint


@pytest.mark.parametrize("content", [f'{{"run": "1", "format": {FORMAT}}}', "{", "[]"])
def test_a_folder_of_this_format_is_read(tmp_path: Path, content: str) -> None:
    (tmp_path / "run.json").write_text(content)
    MemberFolder(tmp_path).refuse_unreadable()
    locked(tmp_path)


def test_a_run_is_recorded_once_with_its_format(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    assert run.number() is None
    run.record("one", "three", "secret")
    run.record("another", "three", "public")
    found = read_record(tmp_path / "run.json")
    assert found is not None and found.pop("checksum")
    assert found == {
        "run": "one",
        "federation": "three",
        "start": "secret",
        "stops": True,
        "format": FORMAT,
        "version": VERSION,
    }
    assert run.number() == "one"


@pytest.mark.parametrize("file", ["summary.json", "events.jsonl", "ledger.jsonl", "run.json"])
def test_a_folder_holds_a_run_from_the_first_file_on(tmp_path: Path, file: str) -> None:
    (tmp_path / "config.yaml").touch()
    assert not MemberFolder(tmp_path).begun
    (tmp_path / file).write_text('{"kind": "Embedding"}\n')
    assert MemberFolder(tmp_path).begun


@pytest.mark.parametrize("content", ["", "{", "[]", '{"base": 3}', "\udcff"])
def test_an_altered_record_is_ignored(tmp_path: Path, content: str) -> None:
    for name in ("launch.json", "simulated.json", "run.json", "summary.json"):
        (tmp_path / name).write_text(content, errors="surrogateescape")
    run = RunFolder(tmp_path)
    assert run.base() is run.simulated_base() is run.number() is None
    assert run.read_summary() in (None, {"base": 3})


def test_the_base_moves_with_the_run(tmp_path: Path) -> None:
    """A copy of a project reads its own tables, or none; a run that was moved alone reads those that it began with."""
    march, april = tmp_path / "march", tmp_path / "april"
    run = RunFolder(march / "runs" / "one")
    run.make()
    for name in ("a.csv", "b.csv"):
        (march / name).touch()
    run.launch.write_text(json.dumps(run.place(march, ["a.csv", "b.csv"])))
    assert run.base() == march
    shutil.copytree(march, april)
    copied = RunFolder(april / "runs" / "one")
    assert copied.base() == april
    (april / "b.csv").unlink()
    with pytest.raises(InputError, match=rf"{april} has a\.csv and no b\.csv, .* in {march}"):
        copied.base()
    (april / "a.csv").unlink()
    assert copied.base() == march
    moved = (march / "runs" / "one").rename(march / "two")
    assert RunFolder(moved).base() == march
    there = march.rename(tmp_path / "may")
    (there / "two").rename(there / "runs" / "one")
    assert RunFolder(there / "runs" / "one").base() == there


def test_everybody_has_a_folder(tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "run")
    assert run.member("server") == run
    assert run.member("bank") == run.party("bank") == PartyFolder(tmp_path / "run" / "parties" / "bank")
    run.party("bank").make()
    run.party("bank").make()
    assert (tmp_path / "run" / "parties" / "bank").is_dir()


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
