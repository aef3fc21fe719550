"""Standard errors of metrics, against the spread over many draws of rows."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import rankdata

from colonnade.server.training.metrics import chance

ROWS, DRAWS = 300, 600


def test_errors_of_classes_are_the_spread_over_draws_of_rows() -> None:
    random = np.random.default_rng(0)
    values: dict[str, list[float]] = {name: [] for name in ("accuracy", "balanced_accuracy", "auc", "log_loss")}
    said: dict[str, list[float]] = {name: [] for name in values}
    for _ in range(DRAWS):
        labels = (random.random(ROWS) < 0.3).astype(np.int64)
        second = 1 / (1 + np.exp(-(1.5 * labels - 0.9 + random.normal(size=ROWS).round(1))))
        probabilities = np.stack([1 - second, second], axis=1)
        guess = probabilities.argmax(axis=1)
        right, ones = guess == labels, labels == 1
        greater = rankdata(second)[ones].sum() - ones.sum() * (ones.sum() + 1) / 2  # Mann and Whitney's U
        measured = (
            right.mean(), (right[ones].mean() + right[~ones].mean()) / 2, greater / (ones.sum() * (~ones).sum()),
            -np.log(np.where(ones, second, 1 - second)).mean(),
        )  # fmt: skip
        found = chance.errors_of_classes(probabilities, labels)
        for name, value in zip(values, measured, strict=True):
            values[name].append(float(value))
            said[name].append(found[name])
    for name, drawn in values.items():
        assert np.mean(said[name]) == pytest.approx(np.std(drawn), rel=0.12), name


def test_errors_of_numbers_are_the_spread_over_draws_of_rows() -> None:
    random = np.random.default_rng(1)
    values: dict[str, list[float]] = {"r2": [], "rmse": [], "mae": []}
    said: dict[str, list[float]] = {name: [] for name in values}
    for _ in range(DRAWS):
        true = random.normal(5.0, 2.0, size=(ROWS, 1))
        predicted = true + random.normal(0.0, 1.0, size=(ROWS, 1))
        wrong = predicted - true
        share = np.square(wrong).sum() / np.square(true - true.mean()).sum()
        measured = (1 - share, np.sqrt(np.square(wrong).mean()), np.abs(wrong).mean())
        found = chance.errors_of_numbers(predicted, true)
        for name, value in zip(values, measured, strict=True):
            values[name].append(float(value))
            said[name].append(found[name])
    for name, drawn in values.items():
        assert np.mean(said[name]) == pytest.approx(np.std(drawn), rel=0.12), name


def test_rows_that_define_no_error_have_none() -> None:
    assert not chance.errors_of_classes(np.array([[0.2, 0.8]]), np.array([1]))
    assert not chance.errors_of_classes(np.array([[np.nan, 0.8], [0.5, 0.5]]), np.array([1, 0]))
    assert "auc" not in chance.errors_of_classes(np.full((3, 2), 0.5), np.array([1, 1, 1]))
    assert not chance.errors_of_numbers(np.zeros((4, 2)), np.ones((4, 2)))


def test_numbers_whose_squares_are_not_finite_have_no_error_of_them() -> None:
    found = chance.errors_of_numbers(np.full((4, 1), 1e200), np.arange(4.0)[:, None])
    assert set(found) == {"mae"} and found["mae"] < 1e200
