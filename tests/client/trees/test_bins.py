"""Bins hold every row once and enough of them, and are those of training wherever they are read again."""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.ensemble._hist_gradient_boosting.binning import _BinMapper

from colonnade.client.training.bins import Binning, TableBins, few_values, greedy
from colonnade.common.data.columns.features import Features, TypedColumn
from colonnade.common.errors import DataError, InputError
from colonnade.common.run.state import Snapshot, State

Floats = NDArray[np.float64]

WORDS = tuple("abcdefgh")
ends = st.integers(2, 12), st.integers(1, 9)  # most, least
numbers = st.lists(
    st.one_of(st.integers(-5, 5).map(float), st.floats(-3e38, 3e38), st.sampled_from([np.nan, 5e-324, 0.1, 0.2, 0.3])),
    max_size=120,
)
places = st.lists(st.one_of(st.integers(0, 7).map(float), st.just(np.nan)), max_size=120)


def fit(cells: Sequence[float], words: Sequence[str] | None = None, most: int = 64, least: int = 20) -> Binning:
    return Binning.fit("x", np.array(cells, np.float64), words, most, least)


def table(**columns: Sequence[float | str | None]) -> Features:
    """A typed table; None is missing, and a column with a word has words."""
    cells, fields = [], []
    for name, column in columns.items():
        words = tuple(sorted({cell for cell in column if isinstance(cell, str)}))
        fields.append(TypedColumn(name, words or None))
        cells.append(
            [np.nan if cell is None else words.index(cell) if isinstance(cell, str) else cell for cell in column]
        )
    return Features(torch.tensor(cells, dtype=torch.float64).T.contiguous(), tuple(columns), fields=tuple(fields))


def refuse_small(binning: Binning, codes: NDArray[np.int64], least: int) -> None:
    """Every bin has enough rows; a column that has not enough of them has one bin."""
    rows = np.bincount(codes, minlength=binning.count)
    assert len(rows) == binning.count
    assert binning.count == 1 or rows.min() >= least


@given(numbers, *ends)
def test_numbers_are_in_one_bin_each_in_their_order(values: list[float], most: int, least: int) -> None:
    cells = np.array(values, np.float64)
    binning, absent = fit(values, None, most, least), np.isnan(cells)
    codes = binning.codes(cells, None)
    refuse_small(binning, codes, least)
    assert binning.values <= most
    assert (np.diff(codes[~absent][np.argsort(cells[~absent])]) >= 0).all()
    assert (codes[absent] == binning.missing).all()
    assert binning.cuts is not None
    for bin, cut in enumerate(binning.cuts):
        below, above = cells[~absent & (codes <= bin)], cells[~absent & (codes > bin)]
        assert below.max() <= cut < above.min()
        middle = below.max() / 2 + above.min() / 2
        assert cut in {middle, below.max()}
        assert cut == middle or not below.max() <= middle < above.min()


@given(places, *ends)
def test_words_are_in_one_bin_each(values: list[float], most: int, least: int) -> None:
    cells = np.array(values, np.float64)
    binning, absent = fit(values, WORDS, most, least), np.isnan(cells)
    codes = binning.codes(cells, WORDS)
    refuse_small(binning, codes, least)
    assert binning.values <= most
    assert (codes[absent] == binning.missing).all()
    counts = np.bincount(cells[~absent].astype(int), minlength=len(WORDS))
    for place, word in enumerate(WORDS):
        if word not in binning.words:
            assert (codes[cells == place] == binning.other).all()
            assert counts[place] <= min((counts[WORDS.index(own)] for own in binning.words), default=len(cells))


@given(st.lists(st.integers(1, 60), min_size=2, max_size=60), st.integers(2, 20), st.integers(1, 30))
def test_a_frequent_value_has_a_bin_alone(sizes: list[int], most: int, least: int) -> None:
    counts = np.array(sizes)
    for last in (greedy(counts, most, least), few_values(counts, least)):
        assert (np.diff(last) > 0).all()
        assert not len(last) or 0 <= last[0] <= last[-1] < len(counts) - 1
    last = greedy(counts, most, least)
    first, last = np.concatenate([[0], last + 1]), np.concatenate([last, [len(counts) - 1]])
    large = np.flatnonzero(counts * max(1, min(most, counts.sum() // least)) >= counts.sum())
    for begin, end in zip(first, last, strict=True):
        inside = large[(begin <= large) & (large <= end)]
        assert len(first) == 1 or len(inside) <= 2  # the last bin may be one that was too small
        # What shares a bin with a frequent value could have none, or the last one of those that are left.
        if len(inside) == 1 and end - begin and end < len(counts) - 1:
            assert inside[0] == end


def test_a_spike_is_alone_and_the_others_share_alike() -> None:
    cells = np.concatenate([np.zeros(900), np.arange(1, 1001)])
    binning = fit(cells.tolist(), None, 16, 20)
    rows = np.bincount(binning.codes(cells, None))
    assert rows[0] == 900 and len(rows) == 16
    assert rows[1:].min() > 60 and rows[1:].max() < 75


def test_few_distinct_values_have_the_cuts_of_scikit_learn() -> None:
    draws = np.random.default_rng(0)
    cells = np.round(draws.normal(size=(500, 4)) * [1, 3, 5, 9])
    cells[::7, 2] = np.nan
    theirs = _BinMapper(n_bins=256, random_state=0).fit(cells)
    for place in range(cells.shape[1]):
        ours = fit(cells[:, place].tolist(), least=1)
        assert ours.cuts is not None and np.array_equal(ours.cuts, theirs.bin_thresholds_[place])
        codes, known = ours.codes(cells[:, place], None), ~np.isnan(cells[:, place])
        assert np.array_equal(codes[known], theirs.transform(cells)[known, place])


def test_missing_values_have_the_last_bin_or_join_the_median() -> None:
    values = [1.0] * 30 + [2.0] * 40 + [3.0] * 30
    many, few, none = (fit([*values, *[np.nan] * count]) for count in (20, 19, 0))
    assert (many.count, many.missing) == (4, 3)
    assert (few.count, few.missing) == (none.count, none.missing) == (3, 1)


def test_rare_words_share_a_bin_or_join_the_most_frequent_one() -> None:
    often = [0.0] * 50 + [1.0] * 30
    apart = fit([*often, *[2.0] * 12, *[3.0] * 8], WORDS)
    assert (apart.words, apart.other, apart.missing, apart.count) == (("a", "b"), 2, 2, 3)
    joined = fit([*often, *[2.0] * 12], WORDS)
    assert (joined.words, joined.other, joined.missing, joined.count) == (("a", "b"), 0, 0, 2)
    gaps = fit([*often, *[2.0] * 12, *[np.nan] * 20], WORDS)
    assert (gaps.other, gaps.missing, gaps.count) == (0, 2, 3)
    together = fit([*often, *[2.0] * 12, *[np.nan] * 10], WORDS)
    assert (together.other, together.missing, together.count) == (2, 2, 3)
    cells, words = np.array([0.0, 1.0, np.nan]), ("b", "new")  # another table numbers its words anew
    assert apart.codes(cells, words).tolist() == [1, 2, 2]


def test_a_table_is_binned_alike_when_it_is_read_again() -> None:
    """Also in another order of rows, by bins that were kept in a checkpoint."""
    draws = np.random.default_rng(1)
    size = 400
    ages = [
        None if draw < 0.1 else float(age)
        for draw, age in zip(draws.random(size), draws.normal(40, 9, size), strict=True)
    ]
    jobs = [("clerk", "miner", "nurse", f"rare {row}")[draw] for row, draw in enumerate(draws.integers(0, 4, size))]
    there = table(age=ages, one=[7.0] * size, job=jobs, two=[float(row < 3) for row in range(size)])
    warnings: list[str] = []
    state, train = State(), torch.arange(300)
    bins = state.keep("bins", TableBins)
    bins.fit(there, train, warnings.append)
    assert warnings == [
        "2 of 4 columns are left out: 'one', 'two'; no two of their values are in 20 training rows each"
    ]
    binned = bins.of(there)
    assert binned.names == ("age", "job") and binned.codes.dtype == np.uint8
    assert binned.counts[1] == 4
    hot = binned.one_hot(train)
    assert hot.shape == (sum(binned.counts), 300)
    assert (hot.rows(0, 300).toarray().sum(1) >= 20).all()

    snapshot = state.capture()
    snapshot = Snapshot(snapshot.tensors, json.loads(json.dumps(snapshot.values)))
    again = State(snapshot).keep("bins", TableBins).of(there.rows(torch.arange(size).flip(0)))
    assert np.array_equal(again.codes[::-1], binned.codes)
    assert again.counts == binned.counts and again.columns[1].words == binned.columns[1].words
    with pytest.raises(DataError, match="no column 'job' of words"):
        bins.of(table(age=ages, one=ages, job=ages))


def test_a_split_has_two_sides_and_words_for_them() -> None:
    rows = [*[20.0] * 20, *[30.0] * 20, *[None] * 20], [*["clerk"] * 30, *["nurse"] * 30]
    bins = TableBins()
    bins.fit(table(age=rows[0], job=rows[1]), torch.arange(60), print)
    binned = bins.of(table(age=[20.0, 31.0, None], job=["nurse", "clerk", "new"]))
    one, two, lost, known, job = (np.array(left) for left in ([1, 0, 0], [1, 0, 1], [0, 0, 1], [1, 1, 0], [0, 1]))
    for column, left, sides, words in (
        (0, one, [1, 0, 0], "age <= 25"),
        (0, two, [1, 0, 1], "age <= 25 or missing"),
        (0, lost, [0, 0, 1], "age is missing"),
        (0, known, [1, 1, 0], "age is a number"),
        (1, job, [1, 0, 0], "job is nurse"),
        (1, 1 - job, [0, 1, 1], "job is clerk"),
    ):
        assert binned.sides(column, left > 0).tolist() == [side > 0 for side in sides]
        assert binned.sides(column, left > 0, torch.tensor([2, 0])).tolist() == [sides[2] > 0, sides[0] > 0]
        assert binned.columns[column].describe(left > 0) == words
    for column, wrong in ((2, job), (-1, job), (0, job), (0, lost * 0), (0, lost * 0 + 1), (0, np.array([0, 1, 0]))):
        with pytest.raises(InputError):
            binned.sides(column, wrong > 0)


def test_a_source_that_is_no_table_is_binned_value_by_value() -> None:
    pixels = torch.arange(64 * 4, dtype=torch.uint8).reshape(64, 2, 2) % 3
    bins = TableBins()
    bins.fit(Features(pixels, ("p0", "p1", "p2", "p3")), torch.arange(64), print)
    binned = bins.of(Features(pixels, ("p0", "p1", "p2", "p3")))
    assert np.array_equal(binned.codes, pixels.flatten(1).numpy())


def test_wide_bins_take_two_bytes_and_a_table_without_any_is_refused() -> None:
    many = table(x=[float(row) for row in range(600)])
    bins = TableBins()
    bins.fit(many, torch.arange(600), print, most=300, least=1)
    assert bins.of(many).codes.dtype == np.uint16 and bins.of(many).counts == (300,)
    with pytest.raises(DataError, match="1 of 1 columns are left out: 'x'"):
        TableBins().fit(many, torch.arange(30), print)
