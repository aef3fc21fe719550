"""Metrics of an evaluation, against scikit-learn and counting; standard errors, against many draws of rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import rankdata
from sklearn import metrics

from colonnade.common.data.labels import TargetScale
from colonnade.server.training.metrics import chance
from colonnade.server.training.metrics.quality import BINS, Score, describe
from colonnade.server.training.metrics.residuals import Residuals


def outputs(rows: int, classes: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities correlated with the labels, with every class present."""
    draws = np.random.default_rng(seed)
    labels = np.concatenate([np.arange(classes), draws.integers(0, classes, rows)])
    logits = draws.normal(size=(len(labels), classes)) + 1.5 * np.eye(classes)[labels]
    each = np.exp(logits)
    return each / each.sum(axis=1, keepdims=True), labels


@given(rows=st.integers(5, 200), classes=st.integers(2, 5), seed=st.integers(0, 99), ties=st.booleans())
def test_metrics_are_those_of_scikit_learn(rows: int, classes: int, seed: int, ties: bool) -> None:
    p, labels = outputs(rows, classes, seed)
    if ties:  # sums of sixteenths are exact
        p = np.floor(16 * p) / 16
        p[:, 0] += 1 - p.sum(axis=1)
    found, details = describe(p, labels)
    if classes == 2:
        auc = metrics.roc_auc_score(labels, p[:, 1])
        precision, brier = metrics.average_precision_score(labels, p[:, 1]), metrics.brier_score_loss(labels, p[:, 1])
    else:
        auc = metrics.roc_auc_score(labels, p, multi_class="ovr", average="macro")
        precision = metrics.average_precision_score(np.eye(classes)[labels], p, average="macro")
        brier = np.square(p - np.eye(classes)[labels]).sum(axis=1).mean()
    assert found["auc"] == pytest.approx(auc) and found["average_precision"] == pytest.approx(precision)
    assert found["brier"] == pytest.approx(brier)
    if not ties:  # scikit-learn clips a probability of 0 elsewhere
        assert found["log_loss"] == pytest.approx(metrics.log_loss(labels, p))
    assert found["f1"] == pytest.approx(metrics.f1_score(labels, p.argmax(1), average="macro"))
    assert details["confusion"] == metrics.confusion_matrix(labels, p.argmax(1)).tolist()


def test_calibration_is_counted_by_bins() -> None:
    p = np.array([[0.95, 0.05], [0.92, 0.08], [0.35, 0.65], [0.0, 1.0]])
    found, details = describe(p, np.array([0, 1, 1, 1]))
    low, middle, high = details["reliability"]
    assert (low["from"], low["to"], low["rows"], low["share"]) == (0.0, 1 / BINS, 2, 0.5)
    assert low["confidence"] == pytest.approx(0.065)
    assert (middle["from"], middle["rows"], high["to"], high["share"]) == (0.6, 1, 1.0, 1.0)
    assert found["ece"] == pytest.approx((2 * 0.435 + 0.35) / 4)


def test_classes_that_the_rows_lack_are_left_out_of_the_means() -> None:
    p, labels = outputs(50, 3, 0)
    kept = labels != 2
    found, _ = describe(p[kept], labels[kept])
    each = [metrics.roc_auc_score(labels[kept] == number, p[kept][:, number]) for number in (0, 1)]
    assert found["auc"] == pytest.approx(np.mean(each))
    said = p[kept].argmax(1)
    assert found["f1"] == pytest.approx(metrics.f1_score(labels[kept], said, average="macro"))  # some are said to be 2
    alone, details = describe(p[labels == 1], labels[labels == 1])
    assert "auc" not in alone and "brier" in alone and details["confusion"][0] == [0, 0, 0]


def test_no_quality_is_reported_for_a_diverged_model() -> None:
    assert describe(np.full((3, 2), np.nan), np.zeros(3, dtype=np.int64)) == ({}, {})


def test_a_score_takes_blocks() -> None:
    logits, labels = torch.randn(40, 3, generator=torch.Generator().manual_seed(0)), torch.arange(40) % 3
    whole, parts = Score(), Score()
    whole.add(logits, labels)
    for rows in torch.split(torch.arange(40), 7):
        parts.add(logits[rows], labels[rows])
    assert whole.closer() == parts.closer()
    assert parts.metrics["loss"] == pytest.approx(whole.closer()[0]["log_loss"], rel=1e-5)


@given(rows=st.integers(2, 60), targets=st.integers(1, 3), seed=st.integers(0, 99))
def test_residuals_are_those_of_scikit_learn_in_the_targets_own_units(rows: int, targets: int, seed: int) -> None:
    draws = torch.Generator().manual_seed(seed)
    true = 100 + 20 * torch.randn(rows, targets, dtype=torch.float64, generator=draws)
    scale = TargetScale.fit(true, torch.arange(rows))
    said = scale.apply(true) + torch.randn(rows, targets, generator=draws)
    residuals = Residuals(scale)
    for block in torch.split(torch.arange(rows), 9):
        residuals.add(said[block], scale.apply(true)[block])
    found, back = residuals.metrics, scale.undo(said)
    assert found["rmse"] == pytest.approx(metrics.root_mean_squared_error(true, back), rel=1e-4)
    assert found["mae"] == pytest.approx(metrics.mean_absolute_error(true, back), rel=1e-4)
    assert found["r2"] == pytest.approx(metrics.r2_score(true, back), rel=1e-4, abs=1e-4)
    more, details = residuals.closer()
    mean = np.broadcast_to(true.mean(dim=0).numpy(), true.shape)
    assert more == {"baseline_rmse": pytest.approx(metrics.root_mean_squared_error(true, mean), rel=1e-4)}
    assert set(details) == ({"chance", "residuals"} if targets == 1 and rows >= 20 else {"chance"})
    if targets == 1 and rows >= 20:
        off, said_of = (back - true).abs().numpy(), details["residuals"]
        assert sum(said_of["histogram"]["rows"]) == sum(band["rows"] for band in said_of["bands"]) == rows
        reached = {share: float((off <= within + 1e-3).mean()) for share, within in said_of["within"].items()}
        assert all(found_share >= float(share) - 1 / rows for share, found_share in reached.items())
        bands = said_of["bands"]
        assert all(band["low"] <= band["median"] <= band["high"] and band["rows"] >= 5 for band in bands)
        assert [band["predicted"] for band in bands] == sorted(band["predicted"] for band in bands)


ROWS, DRAWS = 300, 600


def check_spread(names: Sequence[str], draw: Callable[[], tuple[Sequence[float], Mapping[str, float]]]) -> None:
    """`draw` measures on rows drawn anew, by `names`, and has the errors stated for them."""
    drawn = [draw() for _ in range(DRAWS)]
    for place, name in enumerate(names):
        spread = np.std([float(measured[place]) for measured, _ in drawn])
        assert np.mean([said[name] for _, said in drawn]) == pytest.approx(spread, rel=0.12), name


def test_errors_of_classes_are_the_spread_over_draws_of_rows() -> None:
    random = np.random.default_rng(0)

    def draw() -> tuple[Sequence[float], Mapping[str, float]]:
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
        return measured, chance.errors_of_classes(probabilities, labels)

    check_spread(("accuracy", "balanced_accuracy", "auc", "log_loss"), draw)


def test_errors_of_numbers_are_the_spread_over_draws_of_rows() -> None:
    random = np.random.default_rng(1)

    def draw() -> tuple[Sequence[float], Mapping[str, float]]:
        true = random.normal(5.0, 2.0, size=(ROWS, 1))
        predicted = true + random.normal(0.0, 1.0, size=(ROWS, 1))
        wrong = predicted - true
        share = np.square(wrong).sum() / np.square(true - true.mean()).sum()
        measured = (1 - share, np.sqrt(np.square(wrong).mean()), np.abs(wrong).mean())
        return measured, chance.errors_of_numbers(predicted, true)

    check_spread(("r2", "rmse", "mae"), draw)


def test_rows_that_define_no_error_have_none() -> None:
    assert not chance.errors_of_classes(np.array([[0.2, 0.8]]), np.array([1]))
    assert not chance.errors_of_classes(np.array([[np.nan, 0.8], [0.5, 0.5]]), np.array([1, 0]))
    assert "auc" not in chance.errors_of_classes(np.full((3, 2), 0.5), np.array([1, 1, 1]))
    assert not chance.errors_of_numbers(np.zeros((4, 2)), np.ones((4, 2)))


def test_numbers_whose_squares_are_not_finite_have_no_error_of_them() -> None:
    found = chance.errors_of_numbers(np.full((4, 1), 1e200), np.arange(4.0)[:, None])
    assert set(found) == {"mae"} and found["mae"] < 1e200
