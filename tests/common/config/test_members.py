"""The set that a round was summed over is never forgotten, even over crashes."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colonnade.common.aggregation.summed_sets import MemberRecord
from colonnade.common.errors import CheckpointError, EnvironmentFault, InputError
from colonnade.common.run.run_cache import RunCache

ROSTER = ("ada", "bob", "cyd", "eve")
ALL, SOME, OTHERS = frozenset(ROSTER), frozenset(("ada", "bob", "cyd")), frozenset(("ada", "bob", "eve"))

SETS = st.sampled_from([ALL, SOME, OTHERS])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("enter"), st.integers(1, 40), SETS),  # so many rounds further
        st.tuples(st.just("restart"), st.integers(0, 80), SETS),  # so many rounds back
        st.tuples(st.just("crash"), st.integers(1, 40), SETS),  # while the next round is entered
    ),
    max_size=8,
)


def opened(folder: Path, run: str = "run1") -> MemberRecord:
    """The record as a new process reads it."""
    return MemberRecord(RunCache(folder), run, ROSTER)


@given(steps=STEPS)
def test_no_round_is_ever_entered_over_two_sets(steps: list, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Against a plain dictionary; after every step the disk alone has the same content."""
    folder, entered, round = tmp_path_factory.mktemp("once"), {}, 0
    record = opened(folder)
    for what, rounds, parties in steps:
        if what == "restart":
            record, round = opened(folder), max(0, round - rounds)
            continue
        round += rounds
        if what == "crash":
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr("colonnade.common.run.run_cache.write_durably", _crash)
                try:
                    record.enter(round, parties)
                except KeyboardInterrupt:
                    record, round = opened(folder), round - rounds
                    continue
        elif record.enter(round, parties):
            assert entered.setdefault(round, parties) == parties
        disk = opened(folder)
        assert all(disk.bound(each) == record.bound(each) == over for each, over in entered.items())


def _crash(_path: Path, _content: bytes) -> None:
    raise KeyboardInterrupt


def test_rounds_that_were_done_come_again_over_their_own_sets(tmp_path: Path) -> None:
    record, sets = opened(tmp_path), {1: ALL, 2: ALL, 3: SOME, 7: SOME, 8: ALL}
    assert all(record.enter(round, parties) for round, parties in sets.items())
    assert [record.bound(round) for round in (3, 4, 8)] == [SOME, SOME, ALL]
    assert record.bound(9) is None and record.enter(9, OTHERS)
    again = opened(tmp_path)
    for round, parties in sets.items():
        assert again.bound(round) == parties and again.enter(round, parties)
        assert not again.enter(round, OTHERS)
    assert again.enter(10, OTHERS) and not again.enter(10, ALL)


def test_after_a_restart_some_rounds_count_as_done_and_the_others_are_new(tmp_path: Path) -> None:
    """Up to a multiple of 32, independent of the record's beginning: all members draw the line at the same round."""
    for begun in (1, 20, 32):
        folder = tmp_path / str(begun)
        opened(folder).enter(begun, ALL)
        assert opened(folder).bound(32) == ALL and not opened(folder).enter(32, SOME)
        assert opened(folder).bound(33) is None and opened(folder).enter(33, SOME)


def test_rounds_before_the_first_that_we_were_in_do_not_make_us_forget_it(tmp_path: Path) -> None:
    """A member that is late for a run enters it in some round, and returns to its beginning with the others."""
    record = opened(tmp_path)
    assert record.enter(3, SOME) and record.enter(5, OTHERS)
    record = opened(tmp_path)
    assert not record.enter(1, ALL) and record.enter(1, SOME)
    assert not record.enter(3, ALL) and record.bound(3) == opened(tmp_path).bound(3) == SOME


def test_a_member_that_missed_rounds_takes_no_new_round_for_a_completed_one(tmp_path: Path) -> None:
    server, party = opened(tmp_path / "server"), opened(tmp_path / "party")
    for round in range(1, 71):
        assert server.enter(round, SOME if 10 <= round < 13 else ALL)
        if not 10 <= round < 13:
            assert party.enter(round, ALL)
    for record in (opened(tmp_path / "server"), opened(tmp_path / "party")):
        assert record.bound(96) == ALL and record.bound(97) is None


def test_a_set_becomes_smaller_before_its_round_is_summed_and_stays_so(tmp_path: Path) -> None:
    record = opened(tmp_path)
    assert record.enter(1, ALL) and record.enter(2, ALL)
    record.narrow(2, SOME)
    for there in (record, opened(tmp_path)):
        assert (there.bound(1), there.bound(2)) == (ALL, SOME) and not there.enter(2, ALL)
    assert record.enter(3, ALL) and opened(tmp_path).bound(2) == SOME


@pytest.mark.parametrize(("round", "parties"), [(1, SOME), (2, ALL), (2, OTHERS), (3, SOME)])
def test_no_other_set_is_made_of_one_that_was_entered(tmp_path: Path, round: int, parties: frozenset[str]) -> None:
    record = opened(tmp_path)
    assert record.enter(1, ALL) and record.enter(2, SOME)
    with pytest.raises(InputError, match=f"the set of round {round} cannot become"):
        record.narrow(round, parties)
    assert opened(tmp_path).bound(2) == SOME


def test_nothing_is_written_while_nothing_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written, keep = [], RunCache.keep_record
    monkeypatch.setattr(
        RunCache, "keep_record", lambda self, name, *rest: (written.append(name), keep(self, name, *rest))
    )
    record = opened(tmp_path)
    assert all(record.enter(round, ALL) for round in range(1, 97))
    assert written == ["members"] * 3


@pytest.mark.parametrize("run", ["run2", "", "run1 9", "x run1"])
def test_another_run_is_refused_and_forgets_nothing(tmp_path: Path, run: str) -> None:
    assert opened(tmp_path).enter(5, ALL)
    with pytest.raises(CheckpointError, match="the record of sums is of run run1, not"):
        opened(tmp_path, run)
    assert opened(tmp_path).bound(5) == ALL


@pytest.mark.parametrize("failing", ["os.fsync", "colonnade.common.run.files.write_durably"])
def test_a_full_disk_admits_no_new_entry_and_forgets_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    def full(*_args: object) -> None:
        raise OSError(28, "No space left on device")

    record = opened(tmp_path)
    assert record.enter(1, ALL)
    monkeypatch.setattr(failing, full)
    for _ in range(2):  # also where it is tried again
        with pytest.raises(EnvironmentFault, match="No space left on device"):
            record.enter(2, SOME)
    monkeypatch.undo()
    assert record.bound(2) is None and opened(tmp_path).bound(1) == ALL
    assert record.enter(2, SOME) and opened(tmp_path).bound(2) == SOME and opened(tmp_path).bound(1) == ALL


@given(data=st.data())
def test_a_truncated_file_is_refused(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("once")
    record = opened(folder)
    assert record.enter(1, ALL) and record.enter(33, ALL)
    victim = folder / data.draw(st.sampled_from(sorted(path.name for path in folder.iterdir())))
    content = victim.read_bytes()
    victim.write_bytes(content[: data.draw(st.integers(0, len(content) - 1))])
    with pytest.raises(CheckpointError, match="cannot be computed again"):
        opened(folder)
