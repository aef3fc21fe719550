"""Recalibration, against scikit-learn's isotonic regression and its sigmoid, and what both promise."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.calibration import _sigmoid_calibration
from sklearn.isotonic import IsotonicRegression

from colonnade.server.training.metrics import calibration
from colonnade.server.training.metrics.calibration import Isotonic, Platt, fit, read


def rows(seed: int, count: int, slope: float = 1.0, ties: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Margins of a model whose probabilities are off by `slope`, and classes, of both kinds."""
    draw = np.random.default_rng(seed)
    margins = draw.normal(-1, 2, count)
    if ties:
        margins = np.round(margins)
    positive = draw.random(count) < 1 / (1 + np.exp(-(margins + 0.5) / slope))
    positive[:2] = True, False
    return margins, positive


@given(st.integers(0, 10**6), st.integers(2, 80), st.booleans())
def test_the_isotonic_curve_is_that_of_scikit_learn(seed: int, count: int, ties: bool) -> None:
    margins, positive = rows(seed, count, ties=ties)
    ones, others = positive.sum(), (~positive).sum()
    oracle = IsotonicRegression(y_min=1 / (others + 2), y_max=(ones + 1) / (ones + 2), out_of_bounds="clip")
    oracle.fit(margins, positive.astype(float))
    asked = np.concatenate([margins, np.linspace(-12, 12, 101)])
    made = fit("isotonic", margins, positive)
    assert isinstance(made, Isotonic)
    assert made.of(asked) == pytest.approx(oracle.predict(asked), abs=1e-6)  # its margins are float32


@pytest.mark.parametrize("slope", [0.2, 1.0, 7.0])
@pytest.mark.parametrize("count", [2, 30, 3000])
def test_platt_is_that_of_scikit_learn(slope: float, count: int) -> None:
    margins, positive = rows(3, count, slope)
    a, b = _sigmoid_calibration(margins, positive.astype(int))
    made = fit("platt", margins, positive)
    assert isinstance(made, Platt)
    expected = 1 / (1 + np.exp(a * margins + b))
    assert made.of(margins) == pytest.approx(expected, abs=2e-3)  # scikit-learn stops at a gradient of 1e-6 of its own
    assert _loss(made.of(margins), positive) <= _loss(expected, positive) + 1e-9


def _loss(p: np.ndarray, positive: np.ndarray) -> float:
    ones, others = positive.sum(), (~positive).sum()
    targets = np.where(positive, (ones + 1) / (ones + 2), 1 / (others + 2))
    return float(-(targets * np.log(p) + (1 - targets) * np.log(1 - p)).mean())


@pytest.mark.parametrize("name", ["platt", "isotonic"])
@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_no_calibration_changes_the_order_of_rows_and_a_record_keeps_it(name: str, scale: float) -> None:
    for seed in range(5):
        margins, positive = rows(seed, 40)
        if seed == 4:
            positive = ~positive  # worse than chance
        made = fit(name, scale * margins, positive)  # type: ignore[arg-type]
        assert made is not None
        p = made.of(np.sort(scale * margins))
        assert (np.diff(p) >= -1e-12).all() and (p >= 0).all() and (p <= 1).all()
        again = read(made.record())
        assert again == made and made.record()["name"] == name
    assert np.ptp(p) < 0.2  # of rows in the wrong order


@pytest.mark.parametrize("name", ["platt", "isotonic"])
@pytest.mark.parametrize(
    "margins", [[1.0, 1.0, 1.0], [0.0, 0.0, 0.0], [-800.0, 0.0, 800.0], [1e300, 1e299, -1e300]], ids=str
)
def test_equal_separable_and_huge_margins_give_probabilities(name: str, margins: list[float]) -> None:
    made = fit(name, np.array(margins), np.array([False, False, True]))  # type: ignore[arg-type]
    assert made is not None
    p = made.of(np.array([*margins, 5.0, -5.0]))
    assert ((p >= 0) & (p <= 1)).all()


def test_platt_finds_the_error_of_probabilities_that_are_too_sure() -> None:
    margins, positive = rows(0, 20_000, slope=4.0)
    made = fit("platt", margins, positive)
    assert isinstance(made, Platt)
    assert made.slope == pytest.approx(1 / 4, rel=0.08) and made.shift == pytest.approx(1 / 8, abs=0.06)


def test_nothing_is_calibrated_unless_asked_for() -> None:
    assert fit("none", *rows(0, 4)) is None and read(None) is None


def test_the_sigmoid_is_exact_at_both_ends() -> None:
    found = calibration.sigmoid(np.array([-800.0, -40.0, 0.0, 800.0]))
    assert found.tolist() == [0.0, pytest.approx(math.exp(-40)), 0.5, 1.0]
