"""Bands of scores, cut-offs and groups, against pandas, scikit-learn and sums by hand."""

from __future__ import annotations

import numpy as np
import pandas
import pytest
from hypothesis import given
from scipy.stats import ks_2samp
from sklearn.metrics import confusion_matrix, roc_auc_score

from colonnade.server.training.metrics import gains
from colonnade.server.training.metrics.bands import FEWEST, CutOffOutcome, bands, disparities, shift
from tests.server.test_gains import RANKED, Rows, arrays


def drawn(rows: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(seed)
    scores = draw.random(rows)
    return scores, draw.random(rows) < scores**2


@given(RANKED)
def test_the_place_of_ks_is_where_both_classes_are_that_far_apart(rows: Rows) -> None:
    scores, bad = arrays(rows)
    value, at = gains.ks_at(scores, bad)
    assert value == pytest.approx(ks_2samp(scores[bad], scores[~bad]).statistic) and at in scores
    above = scores >= at
    assert abs(above[bad].mean() - above[~bad].mean()) == pytest.approx(value)


def test_tenths_without_ties_are_those_of_pandas() -> None:
    scores, bad = drawn(1003)
    found = bands(scores, bad)
    expected = pandas.DataFrame({"bad": bad}).groupby(pandas.qcut(-scores, 10))["bad"].agg(["size", "sum", "mean"])
    assert np.abs(found.people - expected["size"]).max() <= 1 and found.people.sum() == 1003
    assert found.bads == pytest.approx(expected["sum"].to_numpy(), abs=1)
    assert found.lift == pytest.approx(found.bad_rate / bad.mean())
    for place, cut in enumerate(found.low):
        (goods, refused), (missed, caught) = confusion_matrix(bad, scores >= cut)
        assert found.bads_taken[place] == pytest.approx(caught / (caught + missed))
        assert found.goods_taken[place] == pytest.approx(refused / (refused + goods))
        assert found.taken[place] == pytest.approx((refused + caught) / 1003)
        if goods + missed:
            assert found.approved_bad_rate[place] == pytest.approx(missed / (goods + missed))
    assert np.isnan(found.approved_bad_rate[-1]) and (found.odds == pytest.approx(found.goods / found.bads))


@given(RANKED)
def test_bands_keep_ties_together_and_have_five_rows(rows: Rows) -> None:
    scores, bad = arrays(rows)
    found = bands(scores, bad)
    assert len(found.people) == 1 or found.people.min() >= FEWEST
    assert (found.high >= found.low).all() and (found.low[:-1] > found.high[1:]).all()
    inside = [(scores >= low) & (scores <= high) for low, high in zip(found.low, found.high, strict=True)]
    assert found.people.tolist() == [each.sum() for each in inside]
    assert found.bads.tolist() == [bad[each].sum() for each in inside] and found.bads.sum() == bad.sum()


def test_an_outcome_is_that_of_a_confusion_matrix() -> None:
    scores, bad = drawn(500)
    found = CutOffOutcome.of(scores, bad, 0.7)
    (kept, refused), (missed, caught) = confusion_matrix(bad, scores >= 0.7)
    assert found.true_positive_rate == caught / (caught + missed)
    assert found.false_positive_rate == refused / (refused + kept)
    assert found.approval_rate == (kept + missed) / 500 and found.approved_bad_rate == missed / (kept + missed)
    assert found.auc == pytest.approx(roc_auc_score(bad, scores)) and found.bad_rate == bad.mean()
    goods = CutOffOutcome.of(scores[~bad], bad[~bad], 0.0)
    assert (goods.auc, goods.true_positive_rate, goods.approved_bad_rate) == (None, None, None)


def test_a_shift_by_hand() -> None:
    before = np.repeat(np.arange(10) / 10, 10)  # ten in each tenth
    now = np.concatenate([np.full(60, 0.05), np.full(40, 0.95)])  # .95 is above all of them
    found = shift(before, now)
    assert found is not None
    p = np.array([*[10.5] * 8, 20.5, 0.5]) / (100 + 10 / 2)  # the last of nine bins has .8 and .9
    q = np.array([60.5, *[0.5] * 8, 40.5]) / (100 + 10 / 2)
    assert found[0] == pytest.approx(((q - p) * np.log(q / p)).sum())
    same = shift(before, before[::-1])
    assert same is not None and same[0] == pytest.approx(0) and shift(before, now[:0]) is None


@pytest.mark.parametrize(
    ("sizes", "shown", "small", "beside"),
    [
        ({"a": 100, "b": 40}, {"a", "b"}, set(), set()),
        ({"a": 100, "b": 40, "c": 29}, {"a"}, {"c"}, {"b"}),  # c alone would be the total less a and b
        ({"a": 100, "b": 40, "c": 10, "d": 15}, {"a"}, {"c", "d"}, {"b"}),  # 25 people together
        ({"a": 100, "b": 40, "c": 20, "d": 15}, {"a", "b"}, {"c", "d"}, set()),
        ({"a": 100, "c": 1}, set(), {"c"}, {"a"}),
        ({"a": 10}, set(), {"a"}, set()),
    ],
)
def test_small_groups_cannot_be_computed_from_the_others(
    sizes: dict[str, int], shown: set[str], small: set[str], beside: set[str]
) -> None:
    names = [name for name, size in sizes.items() for _ in range(size)]
    scores, bad = drawn(len(names))
    found = disparities(names, scores, bad, 0.5)
    assert (set(found.shown), set(found.small), set(found.beside)) == (shown, small, beside)
    hidden = sum(sizes.values()) - sum(one.people for one in found.shown.values())
    assert hidden == 0 or hidden >= 30 or not found.shown


def test_disparities_by_hand() -> None:
    names = ["x"] * 40 + ["y"] * 50
    scores = np.array([0.9] * 10 + [0.1] * 30 + [0.9] * 25 + [0.1] * 25)
    bad = np.arange(90) % 2 == 0
    found = disparities(names, scores, bad, 0.5)
    assert list(found.shown) == ["y", "x"]  # the largest first
    assert found.shown["x"].approval_rate == 0.75 and found.shown["y"].approval_rate == 0.5
    assert found.impact("y") == pytest.approx(0.5 / 0.75) and found.impact("x") == 1
    assert found.shown["y"].true_positive_rate == pytest.approx(13 / 25)
    assert disparities(names, scores, bad, 0.05).impact("x") is None  # nobody is approved
