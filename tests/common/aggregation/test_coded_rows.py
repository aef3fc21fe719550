"""Rows in segments: every row has one place, the same at both ends."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from colonnade.common.aggregation.lagrange import NOTHING, PARTS, Block, CodedRows
from colonnade.common.data.rows import Partition
from colonnade.common.errors import ConfigError
from tests.support.federation import config

FEDERATION = config({"name": "fedvs"}).federation


@st.composite
def any_partition(draw: st.DrawFn) -> Partition:
    """1 to 40 training rows and up to 12 of each other part, all in any order."""
    sizes = [draw(st.integers(1, 40)), draw(st.integers(0, 12)), draw(st.integers(0, 12))]
    order = torch.tensor(draw(st.permutations(range(sum(sizes)))))
    return Partition(*torch.split(order, sizes))


@st.composite
def any_coding(draw: st.DrawFn) -> tuple[Partition, int, CodedRows]:
    """A partition, K, and its coded rows with any size of a batch."""
    partition = draw(any_partition())
    segments = draw(st.integers(1, len(partition.train)))
    federation = FEDERATION.model_copy(
        update={"batch": draw(st.integers(1, 60)), "shuffle": draw(st.booleans()), "seed": draw(st.integers(0, 9))}
    )
    return partition, segments, CodedRows(partition, segments, federation)


def expected(rows: Tensor, segments: int, place: int) -> list[int]:
    """The rows that one coded row of a part stands for, by arithmetic: segment k begins at k times the length."""
    length = math.ceil(len(rows) / segments)
    numbers = [segment * length + place for segment in range(segments)]
    return [int(rows[number]) if number < len(rows) else NOTHING for number in numbers]


def columns(block: Block, segments: int) -> list[list[int]]:
    """The rows that every coded row of a block stands for, in segment order."""
    return block.rows.view(segments, len(block.positions)).T.tolist()


@given(coding=any_coding())
def test_every_row_of_every_part_stands_in_exactly_one_place(coding: tuple[Partition, int, CodedRows]) -> None:
    partition, _, rows = coding
    for part in PARTS:
        blocks = rows.blocks(part)
        found = [row for block in blocks for row in block.rows[block.real].tolist()]
        assert sorted(found) == sorted(getattr(partition, part).tolist())
    positions = [position for part in PARTS for block in rows.blocks(part) for position in block.positions.tolist()]
    assert positions == list(range(rows.total))


@given(coding=any_coding())
def test_a_position_stands_for_its_row_in_each_segment(coding: tuple[Partition, int, CodedRows]) -> None:
    partition, segments, rows = coding
    for part in PARTS:
        of_part = getattr(partition, part)
        stands_for = [some for block in rows.blocks(part) for some in columns(block, segments)]
        assert stands_for == [expected(of_part, segments, place) for place in range(len(stands_for))]
        assert len(stands_for) == math.ceil(len(of_part) / segments)


@given(coding=any_coding())
def test_padding_is_only_at_the_end(coding: tuple[Partition, int, CodedRows]) -> None:
    partition, segments, rows = coding
    for part in PARTS:
        by_position = [some for block in rows.blocks(part) for some in columns(block, segments)]
        flat = [row for segment in zip(*by_position, strict=True) for row in segment]
        assert [row for row in flat if row != NOTHING] == flat[: len(getattr(partition, part))]
        assert all(some[0] != NOTHING for some in by_position)  # no coded row stands for nothing at all


@given(coding=any_coding())
def test_a_blocks_real_rows_are_those_that_are_rows(coding: tuple[Partition, int, CodedRows]) -> None:
    partition, segments, rows = coding
    for block in [rows.training(1), *rows.chunks(7)]:
        assert block.real.tolist() == [row != NOTHING for row in block.rows.tolist()]
        assert len(block.rows) == segments * len(block.positions)
    every = {row for part in PARTS for row in getattr(partition, part).tolist()}
    assert {int(row) for block in rows.chunks(7) for row in block.rows[block.real]} == every


@given(coding=any_coding(), epoch=st.integers(0, 3))
def test_the_batches_of_an_epoch_are_all_training_rows(coding: tuple[Partition, int, CodedRows], epoch: int) -> None:
    partition, segments, rows = coding
    coded = math.ceil(len(partition.train) / segments)
    per_epoch = math.ceil(coded / rows.batch)
    blocks = [rows.training(epoch * per_epoch + t) for t in range(1, per_epoch + 1)]
    assert sorted(p for block in blocks for p in block.positions.tolist()) == list(range(coded))
    seen = [row for block in blocks for row in block.rows[block.real].tolist()]
    assert sorted(seen) == sorted(partition.train.tolist())
    for block in blocks:
        stands_for = [expected(partition.train, segments, place) for place in block.positions.tolist()]
        assert columns(block, segments) == stands_for


@given(coding=any_coding(), size=st.integers(1, 50))
def test_chunks_are_all_coded_rows_of_all_parts_in_order(coding: tuple[Partition, int, CodedRows], size: int) -> None:
    _, segments, rows = coding
    chunks = rows.chunks(size)
    assert [position for chunk in chunks for position in chunk.positions.tolist()] == list(range(rows.total))
    assert all(len(chunk.positions) == size for chunk in chunks[:-1])
    by_part = [some for part in PARTS for block in rows.blocks(part) for some in columns(block, segments)]
    assert [some for chunk in chunks for some in columns(chunk, segments)] == by_part


@pytest.mark.parametrize(
    ("batch", "segments", "coded"),
    [(12, 3, 4), (13, 3, 4), (2, 3, 1), (100, 3, 7), (12, 1, 12), (1, 20, 1)],
    ids=["exactly", "rounded down", "one at least", "no more than there are", "K = 1", "as many segments as rows"],
)
def test_a_batch_has_as_many_coded_rows_as_go_into_it(batch: int, segments: int, coded: int) -> None:
    partition = Partition(torch.arange(20), torch.arange(20, 25), torch.arange(0))
    rows = CodedRows(partition, segments, FEDERATION.model_copy(update={"batch": batch}))
    assert rows.batch == len(rows.training(1).positions) == coded
    assert all(len(block.positions) <= coded for block in rows.blocks("validation"))
    assert rows.blocks("test") == []


def test_every_epoch_has_an_order_of_its_own_where_rows_are_shuffled() -> None:
    partition = Partition(torch.arange(60), torch.arange(0), torch.arange(0))

    def epochs(shuffle: bool) -> list[list[int]]:
        rows = CodedRows(partition, 2, FEDERATION.model_copy(update={"batch": 60, "shuffle": shuffle}))
        return [rows.training(t).positions.tolist() for t in (1, 2, 1)]

    still, (first, second, again) = epochs(False), epochs(True)
    assert still == [list(range(30))] * 3
    assert first == again != second != list(range(30))


def test_two_ends_derive_the_same() -> None:
    partition = Partition(torch.randperm(30), torch.arange(30, 40), torch.arange(40, 47))
    federation = FEDERATION.model_copy(update={"batch": 9, "shuffle": True})
    one, other = (CodedRows(partition, 4, federation) for _ in range(2))
    other.training(7)  # regardless of earlier calls
    for t in (1, 2, 9):
        assert torch.equal(one.training(t).rows, other.training(t).rows)


def test_more_segments_than_rows_are_refused() -> None:
    partition = Partition(torch.arange(5), torch.arange(5, 30), torch.arange(0))
    assert CodedRows(partition, 5, FEDERATION).total == 1 + 5
    with pytest.raises(
        ConfigError, match=r"^federation\.protocol\.segments = 6: there are 5 training rows$"
    ) as refused:
        CodedRows(partition, 6, FEDERATION)
    assert refused.value.hint
