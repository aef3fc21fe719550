"""A party's folder belongs to one run, regardless of later names from the server."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from threading import Thread

import pytest
import torch

from colonnade.client.member.pin import Pin
from colonnade.common.conversation.parcels import Begin, Save
from colonnade.common.errors import CheckpointError, ContractError, EnvironmentFault
from colonnade.common.privacy.accounting.ledger import Chain
from colonnade.common.run.checkpoints import Checkpoints, Owner
from colonnade.common.run.json_text import sealed, unsealed
from colonnade.common.run.run_cache import RunCache
from colonnade.common.run.state import Snapshot


def opened(folder: Path) -> Pin:
    """The pin as a new process reads it."""
    return Pin("ada", folder, Checkpoints(folder / "checkpoints"))


def begin(session: int, run: str = "run1", round: int = 0) -> Begin:
    return Begin(session, ("ada",), run, round)


def leave_ledger(folder: Path) -> None:
    (folder / "ledger.jsonl").write_text("{}\n")


def leave_sums(folder: Path) -> None:
    RunCache(folder / "once").keep("members-a", "run1 1 32", {"first": torch.zeros(1)})


def leave_predictions(folder: Path) -> None:
    RunCache(folder / "once-predictions").keep("alignment", "1", {"rows": torch.zeros(1)})


def leave_checkpoint(folder: Path, run: str = "run1", round: int = 5) -> None:
    Checkpoints(folder / "checkpoints").save(round, Snapshot({}, {}), Owner("ada", run))
    Chain(folder / "ledger.jsonl").append({"round": 1})


LEFT = [leave_ledger, leave_sums, leave_predictions, leave_checkpoint]


@pytest.mark.parametrize("leave", LEFT)
def test_another_run_is_refused_once_something_is_there(tmp_path: Path, leave) -> None:
    opened(tmp_path).admit(begin(1))
    leave(tmp_path)
    pin = opened(tmp_path)
    with pytest.raises(CheckpointError, match="holds records of run run1, and the server begins run run2") as refused:
        pin.admit(begin(2, "run2"))
    assert "choose another --out" in refused.value.hint and str(tmp_path) not in refused.value.shared
    assert pin.run == "run1"
    pin.admit(begin(2))


def test_a_run_of_which_nothing_was_left_does_not_bind_the_folder(tmp_path: Path) -> None:
    """Case of a kill between the pin and the first message, with a server that begins another run."""
    opened(tmp_path).admit(begin(7))
    pin = opened(tmp_path)
    assert pin.run == ""
    pin.admit(begin(3, "run2"))
    leave_ledger(tmp_path)
    assert opened(tmp_path).run == "run2"


@pytest.mark.parametrize("stops", [True, False])
def test_a_folder_says_of_every_run_how_its_configuration_was_read(tmp_path: Path, stops: bool) -> None:
    """Which was before the server named the run: by the pin that was there then."""
    opened(tmp_path).admit(begin(1))
    path = tmp_path / "pinned.json"
    kept = unsealed(path.read_bytes())
    path.write_bytes(sealed(kept if stops else {key: value for key, value in kept.items() if key != "stops"}))
    opened(tmp_path).admit(begin(2, "run2"))
    assert unsealed(path.read_bytes())["stops"] is stops


@pytest.mark.parametrize("leave", [leave_ledger, leave_sums, leave_predictions])
def test_a_pin_that_is_missing_beside_records_lets_no_run_in(tmp_path: Path, leave) -> None:
    leave(tmp_path)
    with pytest.raises(CheckpointError, match=r"records of a run, and no pinned\.json that says of which"):
        opened(tmp_path).admit(begin(1))
    assert not (tmp_path / "pinned.json").exists()


@pytest.mark.parametrize("ledger", [True, False])
def test_checkpoints_without_a_pin_are_refused(tmp_path: Path, ledger: bool) -> None:
    leave_checkpoint(tmp_path)
    if not ledger:
        (tmp_path / "ledger.jsonl").unlink()
    with pytest.raises(CheckpointError, match=r"pinned\.json is missing, and there are checkpoints of run run1"):
        opened(tmp_path)


@pytest.mark.parametrize("content", ["", "{", "[]", '{"run": "run1"}', '{"run": "run1", "session": "x"}'])
def test_a_pin_that_was_altered_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "pinned.json").write_text(content)
    with pytest.raises(CheckpointError, match="torn or was altered"):
        opened(tmp_path)


def test_sessions_grow_over_restarts(tmp_path: Path) -> None:
    opened(tmp_path).admit(begin(7))
    for number in (7, 6, 0):
        with pytest.raises(ContractError, match=r"Begin\.session: expected more than 7"):
            opened(tmp_path).admit(begin(number))
    opened(tmp_path).admit(begin(8))


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("how", ["saved", "begun"])
def test_a_run_begins_anew_only_before_its_first_commit(tmp_path: Path, restarted: bool, how: str) -> None:
    pin = opened(tmp_path)
    pin.admit(begin(1))
    pin.note(Save(5))
    leave_checkpoint(tmp_path)
    pin.admit(begin(2))
    if how == "saved":
        pin.note(Save(10, keep=5))
    else:
        pin.admit(begin(3, round=5))
    pin = opened(tmp_path) if restarted else pin
    with pytest.raises(ContractError, match=r"Begin\.round: expected a checkpoint's"):
        pin.admit(begin(4))
    pin.admit(begin(4, round=5))  # a rollback to an older kept one is possible


@pytest.mark.parametrize("run", ["", " ", "a b", "a/b", "x" * 65, "a\n", "ü"])
def test_a_run_has_a_plain_number(tmp_path: Path, run: str) -> None:
    with pytest.raises(ContractError, match=r"Begin\.run"):
        opened(tmp_path).admit(begin(1, run))
    assert not list(tmp_path.iterdir())


def test_a_full_disk_admits_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_args: object) -> None:
        raise OSError(28, "No space left on device")

    pin = opened(tmp_path)
    pin.admit(begin(1))
    monkeypatch.setattr("colonnade.common.run.files.write_durably", full)
    with pytest.raises(EnvironmentFault, match=r"pinned\.json cannot be written: No space left on device"):
        pin.admit(begin(2))
    monkeypatch.undo()
    assert json.loads((tmp_path / "pinned.json").read_text())["session"] == 1
    pin.admit(begin(2))
    assert (tmp_path / "pinned.json").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("restarted", [False, True])
def test_lowered_rates_are_not_raised_again(tmp_path: Path, restarted: bool) -> None:
    pin = opened(tmp_path)
    pin.admit(replace(begin(1), backed_off=2))
    pin.note(Save(4, keep=2))  # which writes the pin again
    leave_checkpoint(tmp_path, round=4)
    for session, times in ((2, 1), (2, 0)):
        pin = opened(tmp_path) if restarted else pin
        with pytest.raises(ContractError, match=rf"Begin\.backed_off: expected at least 2, got {times}"):
            pin.admit(replace(begin(session, round=4), backed_off=times))
    pin.admit(replace(begin(2, round=4), backed_off=2))
    pin.admit(replace(begin(3, round=4), backed_off=3))
    with pytest.raises(ContractError, match="at least 3"):
        opened(tmp_path).admit(replace(begin(4, round=4), backed_off=2))


def test_a_prediction_has_no_rates_and_does_not_reset_them(tmp_path: Path) -> None:
    opened(tmp_path).admit(replace(begin(1), backed_off=2))
    Pin("ada", tmp_path, Checkpoints(tmp_path / "checkpoints"), predicts=True).admit(begin(2))
    with pytest.raises(ContractError, match="at least 2"):
        opened(tmp_path).admit(replace(begin(3), backed_off=1))
    lying = replace(begin(3), backed_off=9)
    Pin("ada", tmp_path, Checkpoints(tmp_path / "checkpoints"), predicts=True).admit(lying)
    opened(tmp_path).admit(replace(begin(4), backed_off=2))


# Rounds never go back, except to a checkpoint that the party has.


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("round", [1, 49, 99, 101, 2**31])
def test_a_round_of_which_no_checkpoint_is_held_is_refused(tmp_path: Path, round: int, restarted: bool) -> None:
    pin = opened(tmp_path)
    pin.admit(begin(1))
    for number in range(1, 121):
        pin.enter(number)
    for kept in (50, 100):
        leave_checkpoint(tmp_path, round=kept)
    pin.note(Save(100, keep=50))
    pin = opened(tmp_path) if restarted else pin
    with pytest.raises(ContractError, match=r"Begin\.round: expected that of a checkpoint which ada holds \(100, 50\)"):
        pin.admit(begin(2, round=round))
    for session, held in ((2, 100), (3, 50), (4, 50)):  # crash, a member that lacks the newest, divergence
        pin.admit(begin(session, round=held))


def test_a_checkpoint_of_a_round_that_was_never_entered_does_not_count(tmp_path: Path) -> None:
    pin = opened(tmp_path)
    pin.admit(begin(1))
    pin.enter(1)
    for kept in (40, 5000):
        leave_checkpoint(tmp_path, round=kept)
    with pytest.raises(ContractError, match=r"which ada holds \(40\), got 5000"):
        opened(tmp_path).admit(begin(2, round=5000))
    opened(tmp_path).admit(begin(2, round=40))


def test_rounds_are_reserved_in_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pin, written = opened(tmp_path), []
    pin.admit(begin(1))
    monkeypatch.setattr("colonnade.client.member.pin.write_kept", lambda *given: written.append(given))
    for number in range(1, 2001):
        pin.enter(number)
    assert len(written) == 2


def test_a_prediction_reserves_no_rounds(tmp_path: Path) -> None:
    opened(tmp_path).admit(begin(1))
    leave_checkpoint(tmp_path, round=40)
    pin = Pin("ada", tmp_path, Checkpoints(tmp_path / "checkpoints"), predicts=True)
    pin.admit(begin(2, round=40))
    pin.enter(10**6)
    assert json.loads((tmp_path / "pinned.json").read_text())["entered"] == 0


def test_a_round_that_is_entered_while_a_checkpoint_is_sealed_stays_entered(tmp_path: Path) -> None:
    """A checkpoint's thread wrote what it had read before it waited for its turn."""
    pin = opened(tmp_path)
    pin.admit(begin(1))
    with pin._writing:
        sealing = Thread(target=pin.seal, args=(Save(1, model=1),))
        sealing.start()
        sealing.join(0.05)  # it waits
        pin._write(replace(pin.content, entered=99))
    sealing.join()
    kept = unsealed((tmp_path / "pinned.json").read_bytes())
    assert (kept["entered"], kept["model"]) == (99, 1)
