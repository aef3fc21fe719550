"""Validation that falls is said once, and not where few rows explain it."""

from __future__ import annotations

import pytest

from colonnade.server.training.metrics.best import Fall


def told(values: list[float], metric: str = "auc", error: float = 0.0) -> tuple[list[int], Fall]:
    """The evaluations after which it is said, from 1."""
    fall = Fall({}, metric)
    return [number for number, value in enumerate(values, 1) if fall.enter(10 * number, value, error)], fall


def test_it_is_said_once_when_three_evaluations_lie_below_the_best() -> None:
    said, fall = told([0.7, 0.757, 0.74, 0.7, 0.65, 0.64, 0.61])
    assert said == [5]
    assert fall.reason == "validation AUC has fallen since round 20: 0.757 then, 0.61 now"


@pytest.mark.parametrize(
    ("values", "error"),
    [
        ([0.7, 0.757, 0.74, 0.7], 0.0),  # two evaluations only
        ([0.7, 0.757, 0.7, 0.755, 0.754], 0.0),  # one low one among them
        ([0.7, 0.757, 0.72, 0.72, 0.72], 0.05),  # within a standard error
        ([0.7, 0.757, 0.749, 0.749, 0.749], 0.0),  # less than a point
        ([0.5, 0.6, 0.7], 0.0),
        ([float("nan")] * 5, 0.0),
    ],
)
def test_it_is_not_said_of_what_chance_explains(values: list[float], error: float) -> None:
    said, fall = told(values, error=error)
    assert said == [] and fall.reason == ""


def test_a_new_best_ends_it_and_it_may_fall_again() -> None:
    said, fall = told([0.8, 0.7, 0.7, 0.7, 0.9, 0.7, 0.7, 0.7])
    assert said == [4, 8] and fall.found["round"] == 50


def test_errors_and_losses_rise() -> None:
    said, fall = told([60.0, 50.0, 55.0, 56.0, 57.0], "rmse")
    assert said == [5]
    assert fall.reason == "validation RMSE has risen since round 20: 50 then, 57 now"
