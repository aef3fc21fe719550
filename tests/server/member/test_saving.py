"""Coordinated checkpoints, the server's part."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest
import torch

from colonnade.common.config.run_options import CheckpointConfig
from colonnade.common.conversation.parcels import Save
from colonnade.common.errors import EnvironmentFault, PartyLost
from colonnade.common.observability.telemetry import Event, Telemetry
from colonnade.common.run.checkpoints import Checkpoints, Owner, model_round
from colonnade.common.run.json_text import unsealed
from colonnade.common.run.state import Snapshot
from colonnade.server.member.saving import Saving

pytestmark = pytest.mark.real_time

OWNER = Owner("server", "a-run")
STATE = Snapshot({"x": torch.ones(2)}, {"x": {"tensor": "x"}})


@dataclass
class Place:
    """A folder, and the recorded events and requests."""

    folder: Path
    now: float = 0.0
    events: list[Event] = field(default_factory=list)
    asked: list[Save] = field(default_factory=list)

    def saving(self, **config: float) -> Saving:
        store = Checkpoints(self.folder)
        telemetry = Telemetry(None, self.events.append)
        return Saving(store, self.folder, OWNER, CheckpointConfig(**config), telemetry, lambda: self.now)

    async def begin(self, saving: Saving, round: int, best: int = 0) -> None:
        await saving.begin(round, STATE, ("ada", "bob"), self.asked.append, best)
        pending = saving._pending
        assert pending is not None and pending.writing is not None
        await pending.writing

    def logged(self, kind: str) -> list[int]:
        return [event["round"] for event in self.events if event["kind"] == kind]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


async def test_when_a_checkpoint_is_due(place: Place) -> None:
    by_rounds = place.saving(rounds=10)
    assert [round for round in range(1, 36) if by_rounds.due(round, 35)] == [10, 20, 30, 35]
    by_time = place.saving(rounds=0, seconds=5)
    assert not by_time.due(1, 35)
    place.now = 5.0
    assert by_time.due(2, 35)
    never = place.saving(rounds=0)
    assert [round for round in range(1, 36) if never.due(round, 35)] == [35]


@pytest.mark.parametrize("committed", [0, 10], ids=["its commit was lost", "a newer one is torn"])
async def test_the_checkpoint_to_resume_from_is_kept_until_the_next_is_committed(place: Place, committed: int) -> None:
    """Otherwise nothing would be common after another crash, and parties begin a run anew only before its first."""

    saving = place.saving()
    saving.committed = committed
    saving.restored(5)
    await place.begin(saving, 12)
    assert place.asked == [Save(12, keep=5)]


async def test_it_is_committed_when_all_have_saved_and_not_before(place: Place, tmp_path: Path) -> None:
    saving = place.saving()
    await place.begin(saving, 10)
    assert place.asked == [Save(10, 0)] and not saving.due(20, 99)
    saving.saved("ada", 10)
    saving.saved("ada", 10)
    saving.saved("bob", 9)
    assert saving.committed == 0 and not (tmp_path / "committed.json").exists()
    saving.saved("bob", 10)
    assert saving.committed == 10 and place.logged("checkpoint") == [10]
    kept = unsealed((tmp_path / "committed.json").read_bytes())
    assert kept == {"round": 10, "best": 0, "sound": 10, "backed_off": 0}
    assert place.saving().committed == 10
    await saving.finish(1)


async def test_the_new_one_and_the_one_before_are_kept(place: Place, tmp_path: Path) -> None:
    saving = place.saving()
    for round in (10, 20, 30):
        await place.begin(saving, round)
        for party in ("ada", "bob"):
            saving.saved(party, round)
    assert Checkpoints(tmp_path).usable(OWNER) == [30, 20]
    assert place.asked == [Save(10, 0), Save(20, 10), Save(30, 20)]


async def test_the_best_one_is_taken_at_once_and_kept_beside_the_newest_two(place: Place, tmp_path: Path) -> None:
    saving = place.saving(rounds=10)
    assert saving.due(13, 99, best=13) and not saving.due(14, 99, best=13)
    for round, best in ((10, 7), (13, 13), (20, 13), (30, 13), (40, 13), (41, 41), (50, 41)):
        await place.begin(saving, round, best)
        for party in ("ada", "bob"):
            saving.saved(party, round)
        if round == 40:
            assert Checkpoints(tmp_path).usable(OWNER) == [40, 30, 13] and saving.best == 13
    assert Checkpoints(tmp_path).usable(OWNER) == [50, 41]
    assert place.asked[3:] == [
        Save(30, 20, 13, 13), Save(40, 30, 13, 13), Save(41, 40, 13, 41), Save(50, 41, 41, 41)
    ]  # fmt: skip
    assert model_round(tmp_path / "committed.json") == 41
    again = place.saving()
    assert (again.committed, again.best) == (50, 41)


async def test_a_best_checkpoint_that_a_party_cannot_save_does_not_count(place: Place) -> None:
    saving = place.saving()
    await place.begin(saving, 10, 10)
    saving.saved("ada", 10, "no space left on device")
    await place.begin(saving, 20, 10)
    for party in ("ada", "bob"):
        saving.saved(party, 20)
    assert (saving.committed, saving.best) == (20, 0)


async def test_a_party_that_cannot_save_is_named_and_the_previous_checkpoint_stays(place: Place) -> None:
    saving = place.saving()
    await place.begin(saving, 10)
    saving.saved("ada", 10)
    saving.saved("bob", 10)
    await place.begin(saving, 20)
    saving.saved("ada", 20, "no space left on device")
    saving.saved("bob", 20)
    assert saving.committed == 10
    failed = [event for event in place.events if event["kind"] == "checkpoint_failed"]
    assert [(event["round"], event["party"], event["reason"]) for event in failed] == [
        (20, "ada", "no space left on device")
    ]
    await saving.finish(1)
    await place.begin(saving, 30)
    assert place.asked[-1] == Save(30, 10)


async def test_a_server_with_a_failing_disk_goes_on(place: Place, tmp_path: Path) -> None:
    place.folder = tmp_path / "file"
    place.folder.write_text("")
    saving = place.saving()
    await place.begin(saving, 10)
    assert place.logged("checkpoint_failed") == [10] and saving.committed == 0


async def test_a_disk_without_room_for_the_record_either_ends_the_run(place: Place, tmp_path: Path) -> None:
    """The task that writes the checkpoint is awaited by nobody: its error reaches the run at the next checkpoint."""

    place.folder = tmp_path / "file"
    place.folder.write_text("")
    saving = place.saving()

    def full(event: Event) -> None:
        if event["kind"] == "checkpoint_failed":
            raise EnvironmentFault("events.jsonl cannot be written: No space left on device")

    saving._telemetry.add(full)
    await place.begin(saving, 10)
    for waits in (saving.make_way, saving.finish):
        with pytest.raises(EnvironmentFault, match="No space left on device"):
            await waits(1)


async def test_the_end_waits_for_all_parties_and_names_those_that_do_not_save(place: Place) -> None:
    saving = place.saving()
    await place.begin(saving, 10)
    saving.saved("ada", 10)
    with pytest.raises(PartyLost, match=r"bob was lost: no checkpoint of round 10 within 0\.05 s"):
        await saving.finish(0.05)


async def test_one_that_a_party_does_not_confirm_is_given_up_before_the_next(place: Place) -> None:
    """A word that was lost costs neither the run nor the party; the end still needs the last one."""

    saving = place.saving()
    await saving.make_way(1)  # nothing is pending
    await place.begin(saving, 10)
    saving.saved("ada", 10)
    await saving.make_way(0.05)
    failed = [event for event in place.events if event["kind"] == "checkpoint_failed"]
    assert [(event["round"], event["party"]) for event in failed] == [(10, "bob")]
    assert failed[0]["reason"] == "it has not confirmed its checkpoint within 0.05 s"
    await place.begin(saving, 20)
    saving.saved("bob", 10)
    for party in ("ada", "bob"):
        saving.saved(party, 20)
    assert saving.committed == 20 and place.logged("checkpoint") == [20]


def test_a_commit_that_was_altered_is_as_none(place: Place, tmp_path: Path) -> None:
    (tmp_path / "committed.json").write_text("{")
    assert place.saving().committed == 0
