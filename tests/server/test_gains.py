"""Gains, lift and KS of a ranking, against SciPy, against all orders of tied rows, and against the area under them."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import ks_2samp
from sklearn.metrics import roc_auc_score

from colonnade.server.training.metrics import gains
from colonnade.server.training.metrics.quality import describe, measure

Rows = list[tuple[int, bool]]


def ranked(best: int, rows: int) -> st.SearchStrategy[Rows]:
    """Scores from 0 to `best` and labels, of up to this many rows, among them a positive and a negative one."""
    score = st.integers(0, best)
    rest = st.lists(st.tuples(score, st.booleans()), max_size=rows - 2)
    made = st.builds(lambda one, other, more: [(one, True), (other, False), *more], score, score, rest)
    return made.flatmap(st.permutations)


RANKED = ranked(5, 60)  # few scores: many ties


def arrays(rows: Rows) -> tuple[np.ndarray, np.ndarray]:
    scores, positive = (np.array(column) for column in zip(*rows, strict=True))
    return scores / 5, positive


def test_a_ranking_by_hand() -> None:
    scores = np.array([0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.0])
    positive = np.array([1, 1, 0, 1, 0, 0, 0, 0, 0, 0], dtype=bool)
    assert gains.gain(scores, positive) == pytest.approx(1 / 3)  # the first row of ten, and one of three positive ones
    assert gains.gain(scores, positive, 0.2) == pytest.approx(2 / 3)
    assert gains.gain(scores, positive, 0.15) == pytest.approx(1 / 2)  # half of the second row
    assert gains.ks(scores, positive) == pytest.approx(1 - 1 / 7)


@given(RANKED)
def test_ks_is_that_of_two_samples(rows: Rows) -> None:
    scores, positive = arrays(rows)
    assert gains.ks(scores, positive) == pytest.approx(ks_2samp(scores[positive], scores[~positive]).statistic)


@given(RANKED)
def test_the_area_under_the_gains_is_that_under_the_roc_curve(rows: Rows) -> None:
    scores, positive = arrays(rows)
    share, (taken, found) = positive.mean(), gains.steps(scores, positive)
    area = np.trapezoid(found, taken)
    assert area == pytest.approx(share / 2 + (1 - share) * roc_auc_score(positive, scores))


@given(ranked(2, 5), st.integers(1, 4))
def test_tied_rows_are_taken_in_all_their_orders(rows: Rows, taken: int) -> None:
    scores, positive = arrays(rows)
    taken = min(taken, len(scores))
    orders = [list(order) for order in permutations(range(len(scores))) if (np.diff(scores[list(order)]) <= 0).all()]
    expected = np.mean([positive[order[:taken]].sum() / positive.sum() for order in orders])
    assert gains.gain(scores, positive, taken / len(scores)) == pytest.approx(expected)


@given(RANKED, st.randoms())
def test_the_order_of_the_rows_does_not_matter(rows: Rows, draw: object) -> None:
    scores, positive = arrays(rows)
    order = np.array(sorted(range(len(rows)), key=lambda _: draw.random()))  # type: ignore[attr-defined]
    assert gains.curve(scores, positive) == gains.curve(scores[order], positive[order])


def test_equal_scores_rank_nothing() -> None:
    positive = np.arange(20) < 5
    constant = np.full(20, 0.3)
    assert gains.ks(constant, positive) == pytest.approx(0) and gains.gain(constant, positive) == pytest.approx(0.1)
    assert all(each["found"] == pytest.approx(each["rows"]) for each in gains.curve(constant, positive))


def test_a_perfect_ranking_reaches_the_best_lift() -> None:
    labels = np.repeat([0, 1], [80, 20])
    p = np.stack([1 - labels, labels], axis=1).astype(np.float64)
    found, details = describe(p, labels)
    assert found["lift"] == pytest.approx(5) and found["gain"] == pytest.approx(0.5) and found["ks"] == 1
    first, *_, last = details["gains"]
    assert first == {"score": None, "rows": 0, "found": 0} and last == {"score": 0, "rows": 1, "found": 1}
    assert {"score": 1.0, "rows": 0.2, "found": 1.0} in details["gains"]  # a point is what a threshold comes to
    assert [each["found"] for each in details["gains"]] == sorted(each["found"] for each in details["gains"])


@pytest.mark.parametrize("labels", [np.zeros(6, dtype=np.int64), np.ones(6, dtype=np.int64)])
def test_rows_of_one_class_have_no_ranking(labels: np.ndarray) -> None:
    p = np.full((6, 2), 0.5)
    found, details = describe(p, labels)
    assert not {"auc", "ks", "lift", "gain"} & set(found) and "gains" not in details and details["chance"] is None
    assert measure(p, labels, ["auc", "ks", "accuracy"][:2]) == {}


def test_more_than_two_classes_are_not_ranked() -> None:
    found, details = describe(np.full((6, 3), 1 / 3), np.arange(6) % 3)
    assert not {"ks", "lift", "gain"} & set(found) and "gains" not in details
