"""Columns of new rows against those of training: bins, counts and the population stability index."""

from __future__ import annotations

import math
import stat
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from colonnade.common.data.columns import distribution
from colonnade.common.data.columns.distribution import ColumnBins, DistributionFile, binned, level
from colonnade.common.data.columns.encode import EncodeConfig, Encoder
from colonnade.common.data.columns.features import Features, TypedColumn
from tests.adversaries.input.test_lost_records import delete, flip, halve

HOW = EncodeConfig("standard", "mean", "zero")


def table(*columns: Any) -> Features:
    """Columns of numbers, or of words, None where one is missing."""
    fields, values = [], []
    for place, column in enumerate(columns):
        words = tuple(sorted({one for one in column if isinstance(one, str)}))
        fields.append(TypedColumn(f"c{place}", words or None))
        codes = {word: code for code, word in enumerate(words)}
        values.append([math.nan if one is None else codes.get(one, one) for one in column])
    return Features(
        torch.tensor(values, dtype=torch.float64).T.contiguous(), tuple(f.name for f in fields), 0, None, tuple(fields)
    )


def fitted(features: Features) -> tuple[tuple[ColumnBins, ...], Encoder]:
    rows = torch.arange(len(features.values))
    encoder = Encoder.fit(HOW, features, rows)
    return distribution.fit(features, encoder.codes, rows), encoder


def counts(training: Features, new: Features) -> list[tuple[ColumnBins, np.ndarray]]:
    bins, encoder = fitted(training)
    places = binned(bins, encoder.codes, new)
    return [(one, one.count(places[:, column].numpy())) for column, one in enumerate(bins)]


def test_the_index_is_that_of_the_formula() -> None:
    bins = ColumnBins("x", np.array([0.0, 1.0, 2.0]), None, np.array([60, 40, 0, 0]))
    found = bins.index(np.array([20, 70, 0, 10]))  # two bins and missing values
    p = [60.5 / 101.5, 40.5 / 101.5, 0.5 / 101.5]
    q = [20.5 / 101.5, 70.5 / 101.5, 10.5 / 101.5]
    assert found is not None
    assert found[0] == pytest.approx(sum((b - a) * math.log(b / a) for a, b in zip(p, q, strict=True)))
    assert found[1] == pytest.approx(13.8155 * (1 / 100 + 1 / 100), rel=0.05)  # of two degrees of freedom


@pytest.mark.parametrize("rows", [60, 300, 3000])
def test_equal_distributions_are_hardly_ever_called_moved(rows: int) -> None:
    draw = np.random.default_rng(rows)
    new = table(*(draw.normal(size=rows) for _ in range(200)))
    found = counts(table(*(draw.normal(size=400) for _ in range(200))), new)
    assert sum(bool(level(bins.index(there))) for bins, there in found) <= 2


def test_shifts_missing_values_and_new_words_are_counted() -> None:
    draw = np.random.default_rng(5)
    words = [f"w{place % 14}" for place in range(500)]
    training = table(draw.normal(size=500), [3.0] * 500, [3.0] * 500, words, draw.normal(size=500), [None, 1.0] * 250)
    new = table(
        draw.normal(size=400) + 1, [2.0] * 400, [4.0] * 400, [*words[:300], *["new"] * 60, *[None] * 40],
        [*draw.normal(size=350), *[None] * 50], [1.0] * 400,
    )  # fmt: skip
    found = counts(training, new)
    assert [level(bins.index(there)) for bins, there in found] == ["shifted"] * 6
    assert [int(there[-1]) for _, there in found] == [0, 0, 0, 40, 50, 0]
    assert [int(there[-2]) for _, there in found][1:4] == [400, 400, 60]  # outside on either side, and new words
    assert all(int(there.sum()) == 400 for _, there in found)


def test_a_column_without_a_value_in_training_is_told_from_one_with() -> None:
    (bins, there), _ = counts(table([None] * 100, [1.0] * 100), table([1.0] * 100, [1.0] * 100))
    assert list(there) == [100, 0] and level(bins.index(there)) == "shifted"


def test_of_many_rows_some_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distribution, "MOST_ROWS", 64)
    (bins,), _ = fitted(table(np.arange(1000.0)))
    assert bins.counts is not None and 32 < bins.counts.sum() <= 64 and bins.edges[0] == 0 and bins.edges[-1] > 900


def test_the_file_reads_back_and_is_the_owners_alone(tmp_path: Path) -> None:
    bins, encoder = fitted(table([1.0, 2.5, None], ["a", "b", "a"]))
    DistributionFile(tmp_path).write(bins)
    path = tmp_path / "distribution.json"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    found, unknown = DistributionFile(tmp_path).read(encoder.codes)
    assert not unknown
    for one, other in zip(found, bins, strict=True):
        assert (one.name, one.words) == (other.name, other.words)
        assert np.array_equal(one.edges, other.edges) and np.array_equal(one.counts, other.counts)  # type: ignore[arg-type]


@pytest.mark.parametrize("harm", [delete, flip, halve, lambda path: path.write_text("{}")])
def test_without_it_words_and_missing_values_are_counted_and_the_index_is_unknown(tmp_path: Path, harm: Any) -> None:
    training, new = table([1.0, 2.5, 2.0], ["a", "b", "a"]), table([9.0, None], ["c", None])
    bins, encoder = fitted(training)
    DistributionFile(tmp_path).write(bins)
    harm(tmp_path / "distribution.json")
    found, unknown = DistributionFile(tmp_path).read(encoder.codes)
    assert ("damaged" in unknown) == (harm is not delete) and unknown
    places = binned(found, encoder.codes, new)
    number, word = (one.count(places[:, column].numpy()) for column, one in enumerate(found))
    assert (number[-1], word[-1], word[-2]) == (1, 1, 1)
    assert [one.index(there) for one, there in zip(found, (number, word), strict=True)] == [None, None]


def test_plain_values_have_none(tmp_path: Path) -> None:
    plain = Features(torch.zeros(4, 2), ("x", "y"))
    assert fitted(plain)[0] == ()
    DistributionFile(tmp_path).write(())
    assert not list(tmp_path.iterdir()) and DistributionFile(tmp_path).read(()) == ((), "")
