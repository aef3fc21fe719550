"""Thresholds, against all that there are and scikit-learn's metrics at them."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score, brier_score_loss, confusion_matrix, f1_score, precision_score, recall_score

from colonnade.common.config.members import DecideConfig
from colonnade.common.run.state import State
from colonnade.server.training.metrics import decision
from colonnade.server.training.metrics.decision import Decision, choose

COSTS = (1.0, 7.5)


def value(by: str, decided: np.ndarray, positive: np.ndarray) -> float:
    """The criterion, more of which is better, counted row by row."""
    pairs = list(zip(decided.tolist(), positive.tolist(), strict=True))
    hits, false, missed = pairs.count((True, True)), pairs.count((True, False)), pairs.count((False, True))
    if by == "f1":
        return 2 * hits / (2 * hits + false + missed)
    if by == "youden":
        return hits / (hits + missed) - false / (false + pairs.count((False, False)))
    return -(COSTS[0] * false + COSTS[1] * missed) / len(pairs)


SCORES = st.lists(st.tuples(st.integers(0, 8), st.booleans()), min_size=1, max_size=12).map(
    lambda found: [(2, True), (5, False), *found]
)


@given(SCORES, st.sampled_from(["f1", "youden", "cost"]), st.sampled_from([8.0, 1e9]))
@settings(deadline=None, max_examples=100)
def test_no_other_threshold_is_better(found: list[tuple[int, bool]], by: str, most: float) -> None:
    scores, positive = (np.array(column) for column in zip(*found, strict=True))
    p = scores / most
    chosen = decision.threshold(by, p, positive, COSTS)
    best = value(by, p >= chosen, positive)
    assert best >= max(value(by, p >= other, positive) for other in [*p, 2.0]) - 1e-9
    assert np.abs(p - chosen).min() > 0 or chosen == 0  # no row lies on it


@pytest.mark.parametrize(
    ("p", "positive", "chosen"),
    [
        ([0.1, 0.2, 0.6, 0.8], [0, 0, 1, 1], 0.4),
        ([0.1, 0.2, 0.3, 0.4], [0, 0, 1, 1], 0.25),
        ([0.3, 0.3, 0.3, 0.3], [0, 1, 0, 0], 0.0),  # to take all is as good as it gets
        ([1.0, 1.0, 0.5, 0.0], [1, 0, 1, 0], 0.25),
        ([np.nextafter(0.5, 0), 0.5], [0, 1], 0.5),  # no number lies between them
    ],
)
def test_f1_by_hand(p: list[float], positive: list[int], chosen: float) -> None:
    assert decision.threshold("f1", np.array(p), np.array(positive, dtype=bool)) == pytest.approx(chosen)


def test_where_a_false_alarm_costs_far_more_no_row_is_positive() -> None:
    for top in (0.7, 1.0):
        p, positive = np.array([0.2, top, top]), np.array([True, False, True])
        chosen = decision.threshold("cost", p, positive, (1e6, 1.0))
        assert chosen > top and not (p >= chosen).any()


def test_of_equally_good_thresholds_the_nearest_to_one_half_is_taken() -> None:
    p = np.array([0.1, 0.3, 0.45, 0.9])
    positive = np.array([False, True, False, True])  # one error anywhere between
    assert decision.threshold("cost", p, positive, (1.0, 1.0)) == pytest.approx(0.675)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("calibrate", ["none", "platt", "isotonic"])
def test_metrics_of_a_decision_are_those_of_scikit_learn(seed: int, calibrate: str) -> None:
    draw = np.random.default_rng(seed)
    margins, positive = draw.normal(size=40), draw.random(40) < 0.3
    positive[:2] = True, False
    made = choose(DecideConfig(by="cost", false_positive=1, false_negative=3), calibrate, margins, positive, 7)  # type: ignore[arg-type]
    assert made is not None and (made.round, made.rows, made.by) == (7, 40, "cost")
    other, true = draw.normal(size=30), draw.random(30) < 0.3
    true[:2] = True, False
    found = decision.measures(made, other, true)
    decided = made.positive(made.probabilities(other))
    assert found["decided_accuracy"] == pytest.approx(accuracy_score(true, decided))
    assert found["decided_recall"] == pytest.approx(recall_score(true, decided))
    assert found["decided_f1"] == pytest.approx(f1_score(true, decided))
    assert found.get("decided_precision", 0.0) == pytest.approx(precision_score(true, decided, zero_division=0))
    assert ("decided_precision" in found) == bool(decided.any())
    assert ("calibrated_brier" in found) == (calibrate != "none")
    closer = (decision.details(made, other, true) or {})["probabilities"]
    assert (closer is None) == (calibrate == "none")
    if closer:
        plain = 1 / (1 + np.exp(-other))
        assert closer["before"]["brier"] == pytest.approx(brier_score_loss(true, plain))
        assert closer["after"]["brier"] == found["calibrated_brier"]
        assert found["calibrated_brier"] == pytest.approx(brier_score_loss(true, made.probabilities(other)))
    more = decision.details(made, other, true)
    assert more is not None and more["confusion"] == confusion_matrix(true, decided).tolist()
    assert found["decided_cost"] == pytest.approx((more["confusion"][0][1] + 3 * more["confusion"][1][0]) / 30)
    p = made.probabilities(other)
    for point in more["curve"][::29]:
        taken = p >= point["threshold"]
        assert point["f1"] == pytest.approx(f1_score(true, taken))
        assert point["recall"] == pytest.approx(recall_score(true, taken))
        assert (point["precision"] is None) == (not taken.any())
    assert [point["threshold"] for point in more["curve"]] == sorted({point["threshold"] for point in more["curve"]})


def test_a_record_keeps_a_decision() -> None:
    margins, positive = np.array([0.5, 1.0, -1.0, 2.0]), np.array([False, True, False, True])
    for calibrate in ("none", "platt", "isotonic"):
        for decide in (None, DecideConfig(by="f1"), DecideConfig(at=0.25)):
            made = choose(decide, calibrate, margins, positive, 3)  # type: ignore[arg-type]
            assert made is not None and decision.read(made.record()) == made
            if decide is None:
                assert (made.threshold, made.by) == (0.5, "")
            elif decide.at:
                assert (made.threshold, made.by) == (0.25, "at")


def test_a_decision_is_kept_with_the_state_and_holds_where_the_settings_ask_for_it() -> None:
    state, f1 = State(), DecideConfig(by="f1")
    assert decision.kept(state, f1, "none") is None
    assert decision.kept(state, DecideConfig(at=0.25), "none") == Decision(0.25, "at")
    made = choose(f1, "platt", np.array([0.5, 1.0, -1.0]), np.array([False, True, False]), 3)
    assert made is not None and decision.keep(state, made) and not decision.keep(state, made)
    again = State(state.capture())
    assert decision.kept(again, f1, "platt") == made
    assert decision.kept(again, DecideConfig(at=0.25), "platt") == replace(made, threshold=0.25, by="at")
    cost = DecideConfig(by="cost", false_positive=1, false_negative=2)
    for decide, calibrate in ((cost, "platt"), (f1, "none"), (f1, "isotonic"), (DecideConfig(at=0.25), "none")):
        assert decision.kept(again, decide, calibrate) is None  # type: ignore[arg-type]
    decision.keep(again, None)
    assert decision.kept(again, f1, "platt") is None


@pytest.mark.parametrize(
    ("margins", "positive"), [([0.0, math.inf], [0, 1]), ([0.0, math.nan], [0, 1]), ([0.0, 1.0], [1, 1])]
)
def test_a_diverged_model_and_rows_of_one_class_choose_nothing(margins: list[float], positive: list[int]) -> None:
    found, kinds = np.array(margins), np.array(positive, dtype=bool)
    assert choose(DecideConfig(by="f1"), "platt", found, kinds, 1) is None
    if not np.isfinite(found).all():
        assert decision.measures(Decision(), found, kinds) == {} and decision.details(Decision(), found, kinds) is None
