"""A member's secret is in its folder before anything depends on it, and a run does not go on without it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from colonnade.client.member.pin import Pin
from colonnade.common.conversation.parcels import Begin
from colonnade.common.errors import CheckpointError, EnvironmentFault
from colonnade.common.run import files
from colonnade.common.run.checkpoints import Checkpoints
from colonnade.common.run.start_secret import StartSecret

NAME = "start.secret"


def pin(folder: Path, **how: Any) -> Pin:
    return Pin("ada", folder, Checkpoints(folder / "checkpoints"), **how)


def begin(session: int, run: str = "run1") -> Begin:
    return Begin(session, ("ada",), run, 0)


def test_it_is_drawn_once_and_kept_for_its_owner_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        first = StartSecret(tmp_path / NAME)
        assert not (tmp_path / NAME).exists() and first.record.startswith("secret ")
        first.keep()
    finally:
        os.umask(before)
    assert (tmp_path / NAME).stat().st_mode & 0o777 == 0o600
    assert (tmp_path / NAME).read_bytes()[:32] == first.value and len(first.value or b"") == 32
    assert StartSecret(tmp_path / NAME, "secret").value == first.value
    assert StartSecret(tmp_path / "other").value != first.value


def test_members_never_share_one(tmp_path: Path) -> None:
    assert len({StartSecret(None).value for _ in range(50)}) == 50


def test_it_is_on_the_disk_before_the_pin_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = list[str]()
    write = files.write_durably

    def noted(path: Path, *how: Any) -> None:
        written.append(path.name)
        write(path, *how)

    monkeypatch.setattr(files, "write_durably", noted)
    pin(tmp_path).admit(begin(1))
    assert written == [NAME, "pinned.json"]
    pin(tmp_path).admit(begin(2))
    assert written == [NAME, "pinned.json", "pinned.json"]


def test_a_full_disk_leaves_neither(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, *_how: Any) -> None:
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr(files, "write_durably", full)
    with pytest.raises(EnvironmentFault, match=r"start\.secret cannot be written: No space left"):
        pin(tmp_path).admit(begin(1))
    assert not list(tmp_path.iterdir())


def test_a_run_goes_on_with_its_own(tmp_path: Path) -> None:
    first = pin(tmp_path)
    first.admit(begin(1))
    (tmp_path / "ledger.jsonl").write_text("{}\n")
    assert pin(tmp_path).start.value == pin(tmp_path, public=True).start.value == first.start.value


@pytest.mark.parametrize("left", [None, b"", b"\0" * 31, b"\0" * 32, b"\0" * 40])
def test_a_lost_secret_is_a_lost_party(tmp_path: Path, left: bytes | None) -> None:
    pin(tmp_path).admit(begin(1))
    (tmp_path / "ledger.jsonl").write_text("{}\n")
    (tmp_path / NAME).unlink()
    if left is not None:
        (tmp_path / NAME).write_bytes(left)
    for public in (False, True):
        with pytest.raises(CheckpointError, match=r"start\.secret is (missing|torn)") as refused:
            pin(tmp_path, public=public)
        assert "begin a new run" in refused.value.hint
    assert pin(tmp_path, predicts=True).start.value  # which needs no start
    assert (tmp_path / NAME).exists() == (left is not None)


def test_a_secret_of_another_run_is_refused_and_predictions_leave_the_record_as_it_is(tmp_path: Path) -> None:
    """Its checksum is right: draws from it would look as well, and not be those that the run began with."""
    pin(tmp_path).admit(begin(1))
    (tmp_path / "ledger.jsonl").write_text("{}\n")
    own = (tmp_path / NAME).read_bytes()
    (tmp_path / NAME).unlink()
    pin(tmp_path, predicts=True).admit(begin(2))
    (tmp_path / "other").mkdir()
    pin(tmp_path / "other").admit(begin(1))
    (tmp_path / NAME).write_bytes((tmp_path / "other" / NAME).read_bytes())
    with pytest.raises(CheckpointError, match=r"start\.secret is another one than the run began with"):
        pin(tmp_path)
    (tmp_path / NAME).write_bytes(own)
    pin(tmp_path).admit(begin(3))


def test_a_run_whose_record_does_not_say_which_goes_on(tmp_path: Path) -> None:
    StartSecret(tmp_path / NAME).keep()
    assert StartSecret(tmp_path / NAME, "secret").record.startswith("secret ")


def test_a_link_in_its_place_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_bytes(bytes(32))
    (tmp_path / NAME).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(CheckpointError, match=r"start\.secret cannot be read"):
        StartSecret(tmp_path / NAME)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(CheckpointError, match="torn or was altered"):
        StartSecret(tmp_path / "pipe")


def test_a_run_of_0_2_0_goes_on_in_public_and_no_new_one_does(tmp_path: Path) -> None:
    pin(tmp_path).admit(begin(1))
    (tmp_path / "ledger.jsonl").write_text("{}\n")
    (tmp_path / NAME).unlink()
    record = json.loads((tmp_path / "pinned.json").read_text())
    del record["start"], record["checksum"]  # as that version wrote it
    (tmp_path / "pinned.json").write_text(json.dumps(record))
    held = pin(tmp_path)
    assert held.start.value is None and held.start.before
    held.admit(begin(2))
    assert json.loads((tmp_path / "pinned.json").read_text())["start"] == "public"
    assert pin(tmp_path).start.value is None
    for name in ("ledger.jsonl", "pinned.json"):  # nothing of it is left: what begins here is new
        (tmp_path / name).unlink()
    anew = pin(tmp_path)
    anew.admit(begin(1, "run2"))
    assert anew.start.value and (tmp_path / NAME).read_bytes()[:32] == anew.start.value
    assert json.loads((tmp_path / "pinned.json").read_text())["start"] == anew.start.record


def test_a_public_start_has_no_file(tmp_path: Path) -> None:
    pin(tmp_path, public=True).admit(begin(1))
    assert not (tmp_path / NAME).exists()
    assert json.loads((tmp_path / "pinned.json").read_text())["start"] == "public"
