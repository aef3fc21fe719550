"""The best evaluation, and when to stop by it."""

from __future__ import annotations

from typing import Any

import pytest

from colonnade.common.config.run_options import StopConfig
from colonnade.common.errors import ConfigError
from colonnade.common.parsing.file import parse
from colonnade.server.evaluation.best import Best
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
    ("federation", "message"),
    [
        ({"stop": {}}, r"federation\.stop: neither patience nor drop is given"),
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
