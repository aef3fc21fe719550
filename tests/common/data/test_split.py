import math
from typing import Literal

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from colonnade.common.config.data.columns import (
    AllSplit,
    ColumnsSplit,
    HalvesSplit,
    ImageRowsSplit,
    PartyIndex,
    PatchesSplit,
    Shape,
    Side,
    SplitConfig,
    WindowsSplit,
)
from colonnade.common.data.split import Part, part_of
from colonnade.common.errors import ConfigError

lengths = st.integers(1, 12)
image_shapes = st.tuples(lengths, lengths) | st.tuples(st.integers(1, 3), lengths, lengths)
parse = TypeAdapter(SplitConfig).validate_python


def deal(split: SplitConfig, shape: Shape, members: int) -> list[Part]:
    return [part_of(split, shape, (), PartyIndex(index, members)) for index in range(members)]


def assert_deals_everything_once(parts: list[Part], shape: Shape) -> None:
    positions = torch.cat([part.positions for part in parts])
    assert positions.sort().values.tolist() == list(range(math.prod(shape)))
    assert all(math.prod(part.shape) == len(part.positions) > 0 for part in parts)


@given(st.data(), image_shapes, st.sampled_from(["even", "random"]), st.integers(0, 3))
def test_columns_are_dealt_once_and_evenly(
    data: st.DataObject, shape: Shape, take: Literal["even", "random"], seed: int
) -> None:
    members = data.draw(st.integers(1, math.prod(shape)))
    parts = deal(ColumnsSplit(take=take, seed=seed), shape, members)
    assert_deals_everything_once(parts, shape)
    sizes = [len(part.positions) for part in parts]
    assert max(sizes) - min(sizes) <= 1
    assert sizes == sorted(sizes, reverse=True)


@given(st.data(), image_shapes)
def test_image_rows_are_dealt_once(data: st.DataObject, shape: Shape) -> None:
    assert_deals_everything_once(deal(ImageRowsSplit(), shape, data.draw(st.integers(1, shape[-2]))), shape)


@given(st.data(), image_shapes)
def test_patches_are_dealt_once(data: st.DataObject, shape: Shape) -> None:
    grid = data.draw(st.tuples(st.integers(1, shape[-2]), st.integers(1, shape[-1])))
    assert_deals_everything_once(deal(PatchesSplit(grid=grid), shape, math.prod(grid)), shape)


@given(st.tuples(st.integers(2, 9), st.integers(2, 9)), st.sampled_from(["left-right", "top-bottom"]))
def test_halves_are_dealt_once(shape: Shape, side: Side) -> None:
    assert_deals_everything_once(deal(HalvesSplit(side=side), shape, 2), shape)


def test_fourteen_parties_of_mnist_have_two_rows_each() -> None:
    part = part_of(ImageRowsSplit(), (28, 28), (), PartyIndex(3, 14))
    assert part.shape == (2, 28)
    assert part.positions.tolist() == list(range(6 * 28, 8 * 28))


def test_the_first_parties_get_the_remainder() -> None:
    parts = deal(ImageRowsSplit(), (28, 28), 5)
    assert [part.shape[0] for part in parts] == [6, 6, 6, 5, 5]


def test_nine_patches_of_a_colour_image() -> None:
    image = torch.arange(3 * 32 * 32).reshape(3, 32, 32)
    part = part_of(PatchesSplit(grid=(3, 3)), (3, 32, 32), (), PartyIndex(5, 9))
    assert part.shape == (3, 11, 10)
    assert torch.equal(part.positions.reshape(part.shape), image[:, 11:22, 22:32])


def test_halves_by_side() -> None:
    image = torch.arange(12).reshape(3, 4)
    right = part_of(HalvesSplit(side="right"), (3, 4), (), PartyIndex(6, 7))
    assert torch.equal(right.positions.reshape(right.shape), image[:, 2:])
    top = part_of(HalvesSplit(side="top-bottom"), (3, 4), (), PartyIndex(0, 2))
    assert torch.equal(top.positions.reshape(top.shape), image[:2])


def test_random_columns_depend_on_the_seed_only() -> None:
    members = [part_of(ColumnsSplit(take="random", seed=seed), (40,), (), PartyIndex(0, 2)) for seed in (1, 1, 2)]
    assert torch.equal(members[0].positions, members[1].positions)
    assert not torch.equal(members[0].positions, members[2].positions)
    drawn = members[0].positions.tolist()
    assert drawn == sorted(drawn) != list(range(20))


def test_named_columns_keep_the_order_of_the_list() -> None:
    part = part_of(ColumnsSplit(take=("c", "a")), (3,), ("a", "b", "c"), PartyIndex(0, 9))
    assert part.positions.tolist() == [2, 0]
    assert part.pick(("a", "b", "c")) == ("c", "a")


def test_the_whole_row() -> None:
    part = part_of(AllSplit(), (2, 3), (), PartyIndex(4, 5))
    assert part.shape == (2, 3) and part.positions.tolist() == list(range(6))


def test_index_and_count_replace_the_party_index() -> None:
    part = part_of(ImageRowsSplit(index=1, count=4), (8, 8), (), PartyIndex(6, 7))
    assert part.positions.tolist() == list(range(16, 32))
    assert part_of(PatchesSplit(grid=(2, 2), index=3), (4, 4), (), PartyIndex(0, 9)).positions.tolist() == [
        10,
        11,
        14,
        15,
    ]


@pytest.mark.parametrize(
    ("split", "shape", "member", "message"),
    [
        (ColumnsSplit(), (4,), PartyIndex(0, 5), "5 parties cannot share 4 columns"),
        (ImageRowsSplit(), (8, 8), PartyIndex(0, 9), "9 parties cannot share 8 pixel rows"),
        (ImageRowsSplit(), (30,), PartyIndex(0, 2), r"'image_rows' cuts images, but .* \(30,\)"),
        (ImageRowsSplit(index=4, count=4), (8, 8), PartyIndex(0, 2), "no party index 4 among 4"),
        (PatchesSplit(grid=(2, 2)), (8, 8), PartyIndex(0, 3), "2 x 2 has 4 patches, the roster 3 parties"),
        (PatchesSplit(grid=(2, 2), index=4), (8, 8), PartyIndex(0, 3), "no party index 4 among 4"),
        (PatchesSplit(grid=(9, 1)), (8, 8), PartyIndex(0, 9), "cannot share 8 pixel rows"),
        (HalvesSplit(), (8, 8), PartyIndex(0, 3), "two parties, the roster has 3"),
        (HalvesSplit(), (30,), PartyIndex(0, 2), "'halves' cuts images"),
        (ColumnsSplit(take=("agee",)), (2,), PartyIndex(0, 2), r"no column 'agee' \(did you mean 'age'\?\)"),
        (ColumnsSplit(take=("age", "age")), (2,), PartyIndex(0, 2), "'age' is listed twice"),
    ],
)
def test_refuses(split: SplitConfig, shape: Shape, member: PartyIndex, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        part_of(split, shape, ("age", "sex"), member)
    assert caught.value.hint


@pytest.mark.parametrize(("index", "count"), [(-1, 3), (3, 3), (0, 0)])
def test_a_party_index_out_of_range_is_refused(index: int, count: int) -> None:
    with pytest.raises(ConfigError, match="no party index"):
        PartyIndex(index, count)


def test_a_kind_alone_is_a_short_form() -> None:
    assert parse("image_rows") == ImageRowsSplit() == parse({"kind": "image_rows"})
    assert parse({"kind": "columns", "take": ["a"]}) == ColumnsSplit(take=("a",))


@pytest.mark.parametrize(
    "value",
    [
        "rows",
        "patches",
        {"kind": "patches", "grid": [0, 3]},
        {"kind": "columns", "take": []},
        {"kind": "columns", "take": "odd"},
        {"kind": "all", "index": 1},
        {"kind": "halves", "side": "middle"},
    ],
)
def test_the_configuration_refuses(value: object) -> None:
    with pytest.raises(ValidationError):
        parse(value)


@given(st.integers(1, 60), st.integers(1, 12), st.integers(1, 60))
def test_windows_cover_the_row_with_equal_parts(width: int, parties: int, columns: int) -> None:
    split = WindowsSplit(columns=columns)
    members = [PartyIndex(index, parties) for index in range(parties)]
    if not columns <= width <= columns * parties:
        with pytest.raises(ConfigError, match=rf"{parties} windows of {columns} columns do not cover a row of {width}"):
            part_of(split, (width,), (), members[0])
        return
    parts = [part_of(split, (width,), (), member).positions for member in members]
    assert all(len(part) == columns for part in parts)
    assert parts[0][0] == 0 and (parties == 1 or parts[-1][-1] == width - 1)
    assert set(torch.cat(parts).tolist()) == set(range(width))
    alone = [part_of(split.pinned(member), (width,), (), PartyIndex(0, 1)).positions for member in members]
    assert all(torch.equal(one, other) for one, other in zip(parts, alone, strict=True))
