"""The best evaluation, when to stop by it, and validation that falls."""

from __future__ import annotations

from typing import Any

import pytest

from colonnade.common.config.run_options import StopConfig
from colonnade.common.errors import ConfigError
from colonnade.common.parsing.file import parse
from colonnade.server.training.metrics.best import Best, Fall
from tests.common.config.test_config import tree


def after(accuracies: list[float], **stop: Any) -> Best:
    """An evaluation every ten rounds; the test rows are a point worse than the validation rows."""
    best = Best(StopConfig(**stop), {})
    for number, accuracy in enumerate(accuracies, 1):
        assert not best.stop
        best.enter(10 * number, "validation", accuracy)
        best.enter(10 * number, "test", accuracy - 0.01)
    return best


def test_the_best_is_the_first_of_the_highest() -> None:
    best = after([0.5, 0.8, 0.8, 0.7], patience=9)
    assert best.round == 20
    assert best.summary(20) == {"round": 20, "val_accuracy": 0.8, "test_accuracy": 0.79, "checkpoint": True}
    assert best.summary(10) == {"round": 20, "val_accuracy": 0.8, "test_accuracy": 0.79, "checkpoint": False}


def test_it_stops_after_so_many_evaluations_without_a_new_best() -> None:
    assert not after([0.5, 0.8, 0.7, 0.8], patience=3).stop
    assert not after([0.5, 0.8, 0.7, 0.81, 0.7, 0.8], patience=3).stop
    stopped = after([0.5, 0.8, 0.7, 0.8, 0.79], patience=3)
    assert stopped.stop == "validation accuracy was no better in 3 evaluations than the best, 80.00% in round 20"


def test_it_stops_when_the_accuracy_has_dropped() -> None:
    assert not after([0.8, 0.785], drop=0.02).stop
    stopped = after([0.8, 0.785, 0.775], drop=0.02)
    assert stopped.stop == "validation accuracy is 77.50%, more than 2 points below the best, 80.00% in round 10"


def test_nothing_is_noted_where_nothing_is_asked_for() -> None:
    best = Best(None, {})
    best.enter(10, "validation", 0.5)
    assert (best.round, best.stop, best.summary(0)) == (0, "", None)


def test_a_test_accuracy_belongs_to_its_own_round() -> None:
    best = Best(StopConfig(patience=1), {})
    best.enter(10, "validation", 0.5)
    best.enter(20, "test", 0.9)
    assert best.summary(0) == {"round": 10, "val_accuracy": 0.5, "test_accuracy": None, "checkpoint": False}


def test_of_errors_the_least_is_the_best_and_a_drop_is_a_share_of_it() -> None:
    best = Best(StopConfig(patience=3, drop=0.1), {}, "rmse")
    for number, error in enumerate([60.0, 50.0, 54.0], 1):
        best.enter(number, "validation", error)
        best.enter(number, "test", error + 1)
    assert best.round == 2 and not best.stop
    assert best.summary(2) == {"round": 2, "val_rmse": 50.0, "test_rmse": 51.0, "checkpoint": True}
    best.enter(4, "validation", 55.5)
    assert best.stop == "validation RMSE is 55.5, more than 10 % above the best, 50 in round 2"


@pytest.mark.parametrize(
    ("metric", "values", "round", "said"),
    [
        ("auc", [0.7, 0.9, 0.88], 2, "validation AUC is 0.88, more than 0.01 below the best, 0.9 in round 2"),
        ("loss", [0.7, 0.5, 0.6], 2, "validation loss is 0.6, more than 1 % above the best, 0.5 in round 2"),
        ("r2", [-0.5, 0.2, 0.1], 2, "validation R2 is 0.1, more than 0.01 below the best, 0.2 in round 2"),
        ("balanced_accuracy", [0.9, 0.5], 1, "validation balanced accuracy is 50.00%, more than 1 points below"),
        ("ks", [0.4, float("nan")], 1, "validation KS is nan, more than 0.01 below the best, 0.4 in round 1"),
    ],
)
def test_every_metric_has_its_better_end(metric: str, values: list[float], round: int, said: str) -> None:
    best = Best(StopConfig(drop=0.01), {}, metric)
    for number, value in enumerate(values, 1):
        best.enter(number, "validation", value, accuracy=0.5)
        best.enter(number, "test", value, accuracy=0.6)
    assert best.stop.startswith(said) and best.round == round
    found = best.summary(0)
    assert found is not None
    assert (found[f"val_{metric}"], found["test_accuracy"]) == (values[round - 1], 0.6)


@pytest.mark.parametrize("metric", ["measure", "accuracy", "ks"])
def test_a_tie_is_decided_by_the_lower_loss(metric: Any) -> None:
    best = Best(StopConfig(patience=9, metric=metric), {}, "ks")
    for number, loss in enumerate([0.6, 0.5, 0.7], 1):
        best.enter(number, "validation", 0.4, loss=loss)
    assert best.round == 2


def test_a_start_that_stops_by_another_metric_begins_anew() -> None:
    found: dict[str, Any] = {}
    Best(StopConfig(patience=1), found).enter(10, "validation", 0.9)
    best = Best(StopConfig(patience=1), found, "auc")
    assert (best.stop, best.summary(10)) == ("", None)
    best.enter(20, "validation", 0.4)
    assert best.round == 20 and best.summary(0) == {
        "round": 20, "val_auc": 0.4, "test_auc": None, "checkpoint": False,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("federation", "message"),
    [
        ({"stop": {"patience": 3, "metric": "aux"}}, r"federation\.stop\.metric"),
        ({"stop": {"patience": 3, "metric": "rmse"}}, r"stop\.metric = rmse with federation\.task = classification"),
        ({"stop": {"patience": 3, "metric": "ks"}}, r"stop\.metric = ks with \d+ classes: it ranks the second of two"),
        ({"stop": {"patience": None}}, r"federation\.stop: neither patience nor drop is given"),
        ({"stop": {"patience": 0}}, r"federation\.stop\.patience = 0: expected at least 1"),
        ({"stop": {"drop": 2}}, r"federation\.stop\.drop = 2: expected less than 1"),
        ({"stop": {"drop": 0}}, r"federation\.stop\.drop = 0: expected more than 0"),
        ({"stop": {"patients": 3}}, r"federation\.stop\.patients: unknown key"),
        ({"stop": {"patience": 3}, "rows": {"validation": 0}}, r"federation\.stop: there are no validation rows"),
    ],
)
def test_wrong_settings_are_refused_with_the_reason(federation: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse(tree(**{f"federation__{key}": value for key, value in federation.items()}))


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
