import gc
from collections.abc import Iterable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from torch.profiler import ProfilerActivity, profile

from colonnade.common.config.run_options import BlockShuffle, RowsConfig, Shuffle
from colonnade.common.data.rows import Batches, Partition, partition
from colonnade.common.errors import ConfigError, InputError

orders = st.booleans() | st.just("full") | st.builds(BlockShuffle, blocks=st.integers(1, 70), group=st.integers(1, 9))
shares = st.integers(0, 20) | st.floats(0, 0.45)


def sizes(parts: Partition) -> tuple[int, int, int]:
    return len(parts.train), len(parts.validation), len(parts.test)


def test_mnist_by_default() -> None:
    parts = partition(70_000, 10_000, RowsConfig(), seed=1)
    assert sizes(parts) == (54_000, 6_000, 10_000)
    assert torch.equal(parts.test, torch.arange(60_000, 70_000))


def test_without_an_official_part_a_fifth_tests() -> None:
    assert sizes(partition(1797, 0, RowsConfig(), seed=1)) == (1294, 144, 359)


def test_counts_and_fractions() -> None:
    assert sizes(partition(100, 0, RowsConfig(validation=5, test=0.25), seed=1)) == (70, 5, 25)
    assert sizes(partition(100, 10, RowsConfig(validation=0, test=0), seed=1)) == (100, 0, 0)


@given(st.integers(41, 200), st.sampled_from([0, 10]), shares, shares | st.none(), st.integers(0, 5))
def test_every_row_goes_to_one_place(
    rows: int, official: int, validation: float, test: float | None, seed: int
) -> None:
    parts = partition(rows, official, RowsConfig(validation=validation, test=test), seed)
    everything = torch.cat([parts.train, parts.validation, parts.test])
    assert everything.sort().values.tolist() == list(range(rows))
    assert everything.dtype == torch.int32


def test_fewer_rows_to_train_on_leave_the_others_as_they_are() -> None:
    whole, part = (partition(200, 50, RowsConfig(train=train, validation=20), seed=3) for train in (None, 30))
    assert sizes(whole) == (130, 20, 50) and sizes(part) == (30, 20, 50)
    assert torch.equal(part.train, whole.train[:30])
    assert torch.equal(part.validation, whole.validation) and torch.equal(part.test, whole.test)
    assert sizes(partition(200, 50, RowsConfig(train=900, validation=20), seed=3)) == (130, 20, 50)


def test_equal_seeds_give_equal_rows_and_others_do_not() -> None:
    first, second, third = (partition(500, 0, RowsConfig(), seed=seed) for seed in (7, 7, 8))
    assert torch.equal(first.train, second.train) and torch.equal(first.test, second.test)
    assert not torch.equal(first.train, third.train) and not torch.equal(first.test, third.test)


def test_a_file_sorted_by_class_does_not_give_batches_of_one_class() -> None:
    classes = torch.arange(1000) // 100
    parts = partition(1000, 0, RowsConfig(), seed=0)
    assert len(classes[parts.train[:50]].unique()) > 5


def test_rows_are_the_same_on_every_machine() -> None:
    # Parties derive them from the seed, each on its own: a change here breaks running federations.
    assert partition(10, 0, RowsConfig(), seed=0).train.tolist() == [4, 3, 7, 2, 5, 6, 8]
    assert Batches(6, 6, seed=0, shuffle=True).of(1).tolist() == [3, 4, 0, 2, 5, 1]
    assert Batches(7, 7, seed=0, shuffle=BlockShuffle(blocks=2, group=2)).of(1).tolist() == [6, 1, 0, 5, 3, 4, 2]


@pytest.mark.parametrize(
    ("rows", "official", "config"),
    [
        (10, 0, RowsConfig(test=10)),
        (10, 0, RowsConfig(test=5, validation=5)),
        (10, 10, RowsConfig()),
        (0, 0, RowsConfig()),
    ],
)
def test_refuses_when_nothing_remains(rows: int, official: int, config: RowsConfig) -> None:
    with pytest.raises(ConfigError, match=f"of {rows} rows none remains for training"):
        partition(rows, official, config, seed=0)


def test_refuses_an_official_part_that_is_not_there() -> None:
    with pytest.raises(ConfigError, match="no test part of its own"):
        partition(10, 0, RowsConfig(test="official"), seed=0)


@pytest.mark.parametrize("value", [1.0, -1, -0.1, "half", True])
def test_the_configuration_refuses(value: object) -> None:
    with pytest.raises(ValidationError):
        RowsConfig(test=value)


def test_batches_of_mnist() -> None:
    batches = Batches(54_000, 1024)
    assert batches.per_epoch == 53
    assert torch.equal(batches.of(1), torch.arange(1024))
    assert len(batches.of(53)) == 752 and batches.of(53)[-1] == 53_999
    assert torch.equal(batches.of(54), batches.of(1))


@given(st.integers(1, 60), st.integers(1, 60), orders, st.integers(0, 3))
def test_an_epoch_sees_every_row_once(rows: int, batch: int, shuffle: Shuffle, epoch: int) -> None:
    batch = min(batch, rows)
    batches = Batches(rows, batch, seed=3, shuffle=shuffle)
    rounds = range(epoch * batches.per_epoch + 1, (epoch + 1) * batches.per_epoch + 1)
    seen = [batches.of(round) for round in rounds]
    assert torch.cat(seen).sort().values.tolist() == list(range(rows))
    assert all(len(positions) == batch for positions in seen[:-1])


def test_shuffled_batches_depend_on_seed_and_epoch_but_not_on_history() -> None:
    batches = Batches(100, 30, seed=5, shuffle=True)
    asked = {round: batches.of(round).tolist() for round in (1, 9, 2, 5, 1, 8)}
    fresh = {round: Batches(100, 30, seed=5, shuffle=True).of(round).tolist() for round in asked}
    assert asked == fresh
    assert sorted(asked[1]) != sorted(asked[5])
    assert asked[1] != Batches(100, 30, seed=6, shuffle=True).of(1).tolist()


@given(st.integers(2, 90), st.integers(1, 90), st.integers(1, 20), st.integers(1, 5))
def test_blocks_are_mixed_in_groups_and_stay_together(rows: int, batch: int, size: int, group: int) -> None:
    batches = Batches(rows, min(batch, rows), 4, BlockShuffle(blocks=size, group=group))
    asked = {round: batches.of(round) for round in reversed(range(1, batches.per_epoch + 1))}
    order = torch.cat([asked[round] for round in sorted(asked)]).tolist()
    while order:
        own = list(dict.fromkeys(row // size for row in order))[:group]
        whole = [row for block in sorted(own) for row in range(block * size, min((block + 1) * size, rows))]
        assert sorted(order[: len(whole)]) == whole
        del order[: len(whole)]


def test_an_order_by_blocks_is_drawn_anew_in_every_epoch_and_by_every_seed() -> None:
    how = BlockShuffle(blocks=10, group=3)
    first, again, other = (Batches(100, 20, seed, how) for seed in (5, 5, 6))
    assert torch.equal(first.of(7), again.of(7)) and not torch.equal(first.of(7), other.of(7))
    assert not torch.equal(first.of(7), first.of(2))


def test_the_global_generator_is_left_alone() -> None:
    torch.manual_seed(0)
    before = torch.get_rng_state()
    partition(50, 0, RowsConfig(), seed=1)
    Batches(50, 7, shuffle=True).of(3)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(("batch", "message"), [(0, "is empty"), (-3, "is empty"), (11, "more than the 10")])
def test_refuses_a_batch(batch: int, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        Batches(10, batch)
    assert caught.value.hint


def test_refuses_round_zero() -> None:
    with pytest.raises(InputError, match="round 0"):
        Batches(10, 5).of(0)


def test_parties_may_be_in_many_epochs_at_once() -> None:
    """More than are cached, one after the other and back: the same batches as when requested alone."""
    batches = Batches(30, 7, seed=2, shuffle=True)
    rounds = [epoch * batches.per_epoch + 2 for epoch in (*range(20), *range(19, -1, -1), 3, 17, 3)]
    for round in rounds:
        assert torch.equal(batches.of(round), Batches(30, 7, seed=2, shuffle=True).of(round))


def test_at_most_two_permutations_of_a_large_table_are_in_memory() -> None:
    rows = 9_000_000  # 36 MB each
    batches = Batches(rows, rows // 2, seed=1, shuffle=True)
    for round in range(1, 9):
        batches.of(round)
    gc.collect()
    sizes = [each.untyped_storage().nbytes() for each in gc.get_objects() if type(each) is torch.Tensor]
    assert 0 < sum(size for size in sizes if size >= 4 * rows) <= 2 * 4 * rows


def draws(rounds: Iterable[tuple[Batches, int]]) -> int:
    """Draws of a permutation while these batches are read."""
    with profile(activities=[ProfilerActivity.CPU]) as profiled:
        for batches, round in rounds:
            batches.of(round)
    return sum(each.count for each in profiled.key_averages() if each.key == "aten::randperm")


def test_members_of_a_process_draw_a_permutation_once() -> None:
    parties = [Batches(1000, 100, seed=11, shuffle=True) for _ in range(20)]
    in_three_epochs = [(party, round + 10 * (n % 3)) for round in range(1, 41) for n, party in enumerate(parties)]
    assert draws(in_three_epochs) == 6 * draws([(Batches(1000, 100, seed=12, shuffle=True), 1)]) > 0


def test_a_batch_may_be_changed_without_harm() -> None:
    for shuffle in (True, False, BlockShuffle(blocks=3)):
        batches = Batches(10, 10, seed=13, shuffle=shuffle)
        before = batches.of(1).clone()
        batches.of(1).zero_()
        assert torch.equal(batches.of(1), before)
