"""A comparison's recommendation and page: what may decide, what is set apart, and what the first chart shows."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from colonnade.common.contracts.registry import CONTRACTS, NAMES
from colonnade.reports.standings.contender import Contender, Estimate, Kind, Measure, Protection
from colonnade.reports.standings.page import ComparisonPage, ValueTable, choose
from tests.cli.read.reports import VILE, Page

AUC = Measure("auc")


def stands(name: str, test: float, validation: float | None = None, sent: float = 1e6, **more: Any) -> Contender:
    """A protocol with a standard error of .01 on both parts."""
    by = None if validation is None else Estimate(validation, 0.01)
    return Contender(name, more.pop("protocol", "split"), test=Estimate(test, 0.01), validation=by, sent=sent, **more)


POOLED = Contender("all pooled", test=Estimate(0.93, 0.01), reference=True)
ALONE = Contender("server alone", test=Estimate(0.7, 0.01), reference=True)


def chosen(*each: Contender, measure: Measure = AUC) -> Any:
    return choose(each, measure, test=1000, validation=500)


def shown(*each: Contender, **more: Any) -> Page:
    rows = [(one.name, AUC.said(one.test), "-") for one in each]
    page = ComparisonPage(
        "three: comparison", AUC, 1000, 500, each, ValueTable(("protocol", "AUC", "tuned"), rows), **more
    )
    return Page(page.html())


def test_test_rows_decide_nothing() -> None:
    """Whatever they say, what validation rows have chosen stays."""
    each = [stands("a", 0.5, 0.91), stands("b", 0.99, 0.8, sent=10.0), stands("c", 0.6, 0.905, sent=2e5)]
    found = chosen(*each)
    others = chosen(*(replace(one, test=Estimate(1 - one.test.value, 0.01)) for one in each if one.test))
    assert found.taken.name == others.taken.name == "c"
    assert found.reason == others.reason and "the 500 validation rows" in found.reason


def test_what_is_within_a_standard_error_of_the_best_is_chosen_by_its_bytes_and_no_more_is_claimed() -> None:
    best, cheap, apart = stands("best", 0.9, 0.91, 2e6), stands("cheap", 0.9, 0.905, 2e5), stands("low", 0.8, 0.8, 1.0)
    found = chosen(best, cheap, apart)
    assert found.taken is cheap and found.tied == (best, cheap)
    assert found.reason.startswith("cheap and best cannot be told apart on the 500 validation rows")
    assert "about a tenth of best's bytes" in found.reason


@pytest.mark.parametrize(("validation", "ahead"), [(0.93, True), (0.9375, True), (0.92, False)])
def test_a_lead_is_claimed_only_where_it_is_longer_than_its_interval(validation: float, ahead: bool) -> None:
    """The interval of a difference of two values with an error of .01 each is .0277."""
    found = chosen(stands("first", 0.9, validation), stands("second", 0.9, 0.9, sent=1.0))
    assert found.taken.name == "first"
    assert ("ahead of every other" in found.reason) is ahead
    assert ("cannot be told apart" in found.reason) is not ahead


def test_a_recommendation_by_test_rows_says_that_they_test_no_longer() -> None:
    found = chosen(stands("a", 0.9), stands("b", 0.8))
    assert found.taken.name == "a" and "no longer test it" in found.reason


def test_errors_that_are_not_known_claim_no_lead() -> None:
    each = (replace(stands(name, value, value), validation=Estimate(value)) for name, value in (("a", 0.9), ("b", 0.8)))
    found = chosen(*each)
    assert found.taken.name == "a" and "no interval is known" in found.reason and "ahead" not in found.reason


def test_protocols_that_hand_out_labels_are_recommended_only_alone() -> None:
    giving = [name for name in NAMES if CONTRACTS[name].exchange.shares_labels]
    every = [stands(name, 0.99, 0.99, 1.0, protocol=name) for name in giving]
    assert giving and chosen(*every, stands("split", 0.9, 0.9)).taken.name == "split"
    assert chosen(*every).taken.name in giving


def test_less_is_better_of_errors() -> None:
    rmse = Measure("rmse", up=False)
    assert chosen(stands("a", 5.0, 5.0), stands("b", 4.0, 4.0), measure=rmse).taken.name == "b"


def test_nothing_is_recommended_of_what_failed_or_learned_nothing() -> None:
    low = stands("low", 0.5, 0.5, cause="AUC 0.5 is not above chance")
    failed = Contender("gone", "split", cause="diverged: no number")
    assert chosen(low, failed).taken is None and "better than chance" in chosen(low, failed).headline
    assert chosen(failed).taken is None and "ended well" in chosen(failed).headline
    assert chosen(low, failed, stands("good", 0.8, 0.8)).taken.name == "good"
    made = shown(low, failed, stands("good", 0.8, 0.8), POOLED)
    assert ["gone", "-", "diverged: no number"] in made.rows and ["low", "0.500 ± 0.020", low.cause] in made.rows
    assert not any(row[0].startswith(("low", "gone")) for row in _chart(made))


def test_the_first_chart_is_sorted_with_references_as_lines_and_the_recommended_marked() -> None:
    made = shown(stands("a", 0.8, 0.8), stands("b", 0.9, 0.9), POOLED, ALONE)
    chart = _chart(made)
    assert [re.split("recommended|in the clear", row[0])[0] for row in chart] == [
        "all pooled",
        "b",
        "a",
        "server alone",
    ]
    assert "recommended" in chart[1][0] and chart[1][-1] == "0.900 ± 0.020"
    assert sum(attrs.get("class") == "best" for name, attrs in made.tags if name == "tr") == 1
    assert "Take b: AUC 0.900 ± 0.020 on 1,000 test rows, 3.0 points worse than all pooled (0.930)." in made.words
    lines = [attrs["x1"] for name, attrs in made.tags if name == "line" and attrs.get("class") == "mark"]
    assert len(lines) == 2 * 4 and len(set(lines)) == 2  # each reference through all rows


def test_a_difference_to_a_reference_that_is_smaller_than_its_interval_is_none() -> None:
    assert "not told apart from all pooled (0.930)" in shown(stands("a", 0.92, 0.92), POOLED).words


def test_columns_without_a_value_are_left_out_and_names_stay_text() -> None:
    made = shown(stands(VILE, 0.8, 0.8), stands("b", 0.9, 0.9))
    assert ["protocol", "AUC"] in made.rows and "tuned" not in made.words
    assert not [name for name, _ in made.tags if name == "script"]


def test_quality_against_bytes_seconds_and_epsilon_where_two_have_them() -> None:
    a, b = stands("a", 0.8, 0.8, sent=1e5, epsilon=1.0), stands("b", 0.9, 0.9, sent=1e7, epsilon=8.0)
    both = shown(a, b).words
    assert "AUC against bytes of training" in both and "AUC against epsilon" in both and "against seconds" not in both
    assert "a: 0.800 at 100.0 kB" in both and "b: 0.900 at 8" in both
    assert "against" not in shown(a, stands("c", 0.9, 0.9, sent=0)).words


@pytest.mark.parametrize(
    ("protocol", "keys", "more", "kind"),
    [
        ("split", {}, {}, "nothing"),
        ("split_avg", {"aggregate": "blinded"}, {}, "sums only"),
        ("fedvs", {}, {}, "sums only"),
        ("secureboost", {}, {}, "encryption"),
        ("secureboost", {"gradients": "clear"}, {}, "nothing"),
        ("hetero_lr", {"aggregate": "blinded"}, {}, "encryption"),
        ("split", {}, {"noise": "epsilon 8"}, "differential privacy"),
        ("split", {}, {"noise": "epsilon 8", "guaranteed": False}, "nothing"),
        ("a_protocol_of_nobody", {}, {}, "nothing"),
    ],
)
def test_protection_is_that_of_the_contract_and_the_keys(
    protocol: str, keys: dict[str, Any], more: dict[str, Any], kind: Kind
) -> None:
    found = Protection.of(protocol, keys, **more)
    assert found.kind == kind
    assert protocol != "hetero_lr" or found.words == "encryption, sums only"


def _chart(made: Page) -> list[list[str]]:
    """Rows of the first chart: between the caption and the row of the axis."""
    end = next(at for at, row in enumerate(made.rows) if row[0] == "AUC")
    return made.rows[:end]
