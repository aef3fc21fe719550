"""The schedule that both sides derive alike."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from colonnade.common.contracts.schedule import Schedule
from colonnade.common.errors import InputError
from colonnade.common.parsing.file import parse

ROWS = 100


def schedule(official_test: int = 0, **values: Any) -> Schedule:
    values = {"batch": 10, "epochs": 2, "rows": {"validation": 10, "test": 15}, "stop": "none", **values}
    fixed = {"id": "t", "protocol": "split", "parties": 2, "classes": 2}
    return Schedule(parse({"federation": {**fixed, **values}}).federation, ROWS, official_test)


def test_epochs_are_rounds_that_see_every_training_row_once() -> None:
    timetable = schedule()
    assert timetable.rounds == 2 * 8
    seen = torch.cat([timetable.batch(round) for round in range(1, 9)])
    assert len(seen) == 75 and torch.equal(seen.sort().values, timetable.partition.train.sort().values)


def test_rounds_are_as_many_as_the_config_says() -> None:
    assert schedule(epochs=0, rounds=11, evaluate={"every": 3}).rounds == 11
    assert schedule().epoch(8) == 1 and schedule().epoch(4) == 0.5


ORDERS = (False, "full", True, {"blocks": 8, "group": 3})


@given(st.integers(0, 2**31), st.sampled_from(ORDERS), st.integers(1, 16))
def test_both_sides_derive_the_same_batches(seed: int, shuffle: Any, round: int) -> None:
    here, there = (schedule(seed=seed, shuffle=shuffle) for _ in range(2))
    there.batch(16)  # earlier calls change nothing
    assert torch.equal(here.batch(round), there.batch(round))


def test_another_seed_gives_other_rows() -> None:
    assert not torch.equal(schedule(seed=1).batch(1), schedule(seed=2).batch(1))


def test_without_shuffling_every_epoch_is_alike_and_with_it_none() -> None:
    assert torch.equal(schedule().batch(1), schedule().batch(9))
    assert not torch.equal(schedule(shuffle=True).batch(1), schedule(shuffle=True).batch(9))


@pytest.mark.parametrize(
    ("values", "parts"),
    [
        ({}, ()),  # 75 training rows in batches of 10
        ({"batch": 37}, ("training",)),
        ({"batch": 37, "epochs": 0, "rounds": 2}, ()),  # that never come to the last
        ({"batch": 9}, ("validation",)),
        ({"batch": 7}, ("test",)),
        ({"batch": 1}, ("training", "validation", "test")),
        ({"batch": 1, "rows": {"validation": 0, "test": 0}}, ("training",)),
    ],
)
def test_the_parts_with_a_batch_of_one_row_are_known(values: dict[str, Any], parts: tuple[str, ...]) -> None:
    timetable = schedule(**values)
    assert timetable.single_rows == parts
    sizes = {len(timetable.batch(round)) for round in range(1, timetable.rounds + 1)}
    assert (1 in sizes) == ("training" in parts)
    for part in ("validation", "test"):
        assert (1 in map(len, timetable.blocks(part))) == (part in parts)


def test_full_is_the_true_of_older_runs() -> None:
    new, old = (schedule(shuffle=shuffle) for shuffle in ("full", True))
    assert torch.equal(new.batch(9), old.batch(9))


@pytest.mark.parametrize("private", [
    {"clip": 1, "epsilon": 5}, {"mechanism": "adaptive", "clip": 1, "epsilon": 500, "delta": 0.001},
])  # fmt: skip
def test_no_order_of_the_rows_buys_privacy(private: dict[str, Any]) -> None:
    """Every member knows the orders, so no subsampling is accounted for: all cost what batches in sequence cost."""
    plans = [schedule(shuffle=shuffle, privacy=private, rounds=0).privacy for shuffle in ORDERS]
    assert plans[0] is not None and len(plans) == len(ORDERS) and all(plan == plans[0] for plan in plans)


@pytest.mark.parametrize(
    ("values", "validation", "test"),
    [
        ({}, [8, 16], [16]),
        ({"evaluate": {"every": 5}}, [5, 10, 15, 16], [16]),
        ({"rows": {"validation": 0, "test": 15}}, [], [18]),
        ({"rows": {"validation": 10, "test": 0}}, [9, 18], []),
        ({"epochs": 0, "rounds": 3}, [3], [3]),
        ({"stop": {"patience": 1}}, [8, 16], [8, 16]),
        ({"stop": {}}, [8, 16], [8, 16]),
    ],
    ids=[
        "at the end of an epoch",
        "every 5 rounds",
        "no validation rows",
        "no test rows",
        "before an epoch is over",
        "may stop",
        "may stop, as by default",
    ],
)
def test_parts_are_evaluated_in_time_and_the_test_rows_once(
    values: dict[str, Any], validation: list[int], test: list[int]
) -> None:
    timetable = schedule(**values)
    due = {part: [t for t in range(1, timetable.rounds + 1) if part in timetable.evaluations(t)]
           for part in ("validation", "test")}  # fmt: skip
    assert due == {"validation": validation, "test": test}


def test_the_evaluated_rounds_around_a_round() -> None:
    timetable = schedule(evaluate={"every": 5})  # after 5, 10, 15 and 16
    assert [timetable.evaluated_before(t) for t in (1, 5, 6, 16)] == [0, 0, 5, 15]
    assert [timetable.evaluated_next(t) for t in (1, 5, 6, 16)] == [5, 5, 10, 16]
    assert schedule(rows={"validation": 0, "test": 0}).evaluated_next(1) == 21


def test_blocks_are_a_part_in_order_and_no_larger_than_a_batch() -> None:
    timetable = schedule()
    assert [len(block) for block in timetable.blocks("test")] == [10, 5]
    assert torch.equal(torch.cat(timetable.blocks("validation")), timetable.partition.validation)


def test_the_sources_own_test_part_is_the_last_rows() -> None:
    timetable = schedule(official_test=20, rows={})
    assert torch.equal(timetable.partition.test, torch.arange(80, 100))


def test_a_batch_larger_than_the_training_rows_is_refused() -> None:
    with pytest.raises(InputError, match="a batch of 76 rows is more than the 75 training rows"):
        schedule(batch=76)


def test_every_block_of_an_evaluation_has_a_stage_of_its_own_from_1() -> None:
    timetable = schedule(batch=4, epochs=0, rounds=4, evaluate={"every": 2})
    for round, parts in ((2, {"validation"}), (4, {"validation", "test"})):
        found = [
            timetable.stage(round, part, number)
            for part in timetable.evaluations(round)
            for number in range(len(timetable.blocks(part)))
        ]
        assert set(timetable.evaluations(round)) == parts
        assert found == list(range(1, 1 + sum(len(timetable.blocks(part)) for part in parts)))


@given(st.integers(1, 17), st.sampled_from([0, 10]), st.sampled_from(["end", "always"]), st.integers(1, 25))
def test_the_evaluations_around_a_round_are_those_that_a_search_finds(
    every: int, validation: int, test: str, rounds: int
) -> None:
    rows = {"validation": validation, "test": 15}
    timetable = schedule(epochs=0, rounds=rounds, rows=rows, evaluate={"every": every, "test": test})
    due = [round for round in range(1, rounds + 1) if timetable.evaluations(round)]
    for round in range(1, rounds + 1):
        assert timetable.evaluated_before(round) == max((r for r in due if r < round), default=0)
        assert timetable.evaluated_next(round) == min((r for r in due if r >= round), default=rounds + 1)


@pytest.mark.parametrize(
    ("values", "patience", "end"),
    [
        ({"epochs": 20}, 10, 88),  # ten epochs
        ({"epochs": 100}, 25, 208),  # a quarter of the run
        ({"epochs": 100, "evaluate": {"every": 4}}, 50, 204),
        ({"epochs": 0, "rounds": 30}, 10, 30),  # shorter than its patience: it never ends early
        ({"epochs": 20, "stop": {"patience": 3}}, 3, 32),
        ({"epochs": 20, "stop": {"drop": 0.1}}, None, 8),
        ({"epochs": 20, "stop": "none"}, None, 160),
    ],
)
def test_patience_is_of_epochs_and_of_the_run_however_often_it_is_evaluated(
    values: dict[str, Any], patience: int | None, end: int
) -> None:
    timetable = schedule(**{"stop": {}, **values})
    assert timetable.patience == patience
    assert timetable.earliest_end == end
