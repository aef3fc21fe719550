"""Verdicts, intervals and orders: what they may never say."""

from __future__ import annotations

import math
import re
import statistics
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import ttest_1samp

from colonnade.reproduction.papers.counts import count
from colonnade.reproduction.papers.intervals import decide, interval
from colonnade.reproduction.papers.measures import lower_is_better, possible
from colonnade.reproduction.papers.orders import pairs
from colonnade.reproduction.papers.paper_comparison import CellStanding, ClaimStanding, TableStanding
from colonnade.reproduction.papers.papers import Cell, Claim, PaperTable

MEASURES = st.sampled_from(["accuracy", "auc", "own@party1", "deviation", "mb@95", "seconds@80", "up", "rounds@90"])
VALUES = st.floats(0, 1000, allow_nan=False)
SEVERAL = st.lists(st.floats(0, 100), min_size=3, max_size=3)


def cell(paper: float, measure: str = "accuracy", row: str = "a", **more: object) -> Cell:
    return Cell(row=row, column="c", paper=paper, run=row, measure=measure, **more)  # type: ignore[arg-type]


@given(VALUES, VALUES, MEASURES)
def test_a_worse_value_is_never_one_that_agrees(ours: float, paper: float, measure: str) -> None:
    one = cell(round(paper, 2), measure, digits=2)
    found = CellStanding(one, {0: ours}).verdict
    slack = {"accuracy": 1.0, "auc": 1.0, "own": 1.0, "deviation": 0.25}.get(measure.partition("@")[0])
    off = abs(ours - one.paper)
    margin = (one.paper / 100 if slack is None else slack) + 0.005
    if off > margin + 1e-9:
        assert found == ("better" if (ours < one.paper) == lower_is_better(measure) else "worse")
    elif off < margin - 1e-9:
        assert found == "agrees"


@given(VALUES, VALUES, MEASURES)
def test_where_only_agreement_counts_nothing_is_better(ours: float, paper: float, measure: str) -> None:
    found = CellStanding(cell(round(paper, 2), measure, better="neither"), {0: ours}).verdict
    assert found in {"agrees", "differs"}


@given(SEVERAL, SEVERAL)
def test_the_order_of_a_pair_turns_with_its_values(first: list[float], second: list[float]) -> None:
    table = PaperTable(title="", cells=(cell(90, row="a"), cell(80, row="b")))
    one, other = dict(enumerate(first)), dict(enumerate(second))
    (forth,), (back,) = pairs(table, (one, other)), pairs(table, (other, one))
    assert (forth.above.row, back.above.row) == ("a", "a")
    turned = {"holds": "reversed", "reversed": "holds", "open": "open"}
    assert back.outcome == turned[forth.outcome or ""]


@settings(max_examples=50)
@given(st.lists(st.integers(-50, 50), min_size=2, max_size=6).filter(lambda leads: len(set(leads)) > 1))
def test_an_order_is_decided_as_by_scipys_test(leads: list[int]) -> None:
    p = float(ttest_1samp(leads, 0).pvalue)
    expected = "open" if p > 0.05 else "holds" if statistics.fmean(leads) > 0 else "reversed"
    assert abs(p - 0.05) < 1e-6 or decide(leads) == expected


@pytest.mark.parametrize(
    ("leads", "said"),
    [
        ((), "open"),
        ((50.0,), "open"),  # one seed
        ((1.0, 1.0), "holds"),
        ((0.0, 0.0), "open"),
        ((math.inf, 3.0), "holds"),  # of two runs one never got there, and the other was later
        ((math.inf, -3.0), "open"),
        ((-math.inf, -math.inf), "reversed"),
        ((math.nan, 3.0), "open"),
    ],
)
def test_special_leads(leads: tuple[float, ...], said: str) -> None:
    assert decide(leads) == said


@given(st.lists(st.floats(0, 100), min_size=2, max_size=3))
def test_a_printed_interval_contains_only_values_that_accuracy_can_have(values: list[float]) -> None:
    ends = interval(values).within(*possible("accuracy"))
    assert ends.low is not None and ends.high is not None
    assert 0 <= ends.low <= ends.high <= 100 and ends.mean == interval(values).mean
    written = CellStanding(cell(50), dict(enumerate(values))).words
    assert all(0 <= float(number) <= 100 for number in re.findall(r"-?\d+\.?\d*", written))


def test_an_interval_needs_two_finite_values() -> None:
    assert interval((1.0,)).low is None
    assert interval((1.0, math.inf)).high is None


def test_pairs_are_those_that_the_paper_separates() -> None:
    found: list[dict[str, Any]] = [
        {"row": "MNIST, a", "paper": 90},
        {"row": "MNIST, b", "paper": 90.9},  # within the slack of the first
        {"row": "Fashion-MNIST, a", "paper": 50},  # another data set
        {"row": "MNIST, c", "paper": 80, "kind": "repeat"},
        {"row": "MNIST, d", "paper": 70, "kind": "repeat"},
        {"row": "MNIST, e", "paper": 5, "kind": "accounting"},
        {"row": "MNIST, f", "paper": 60, "measure": "auc"},
    ]
    cells = tuple(Cell(**one, column="c", run=f"run{at}") for at, one in enumerate(found))
    said = {pair.words for pair in pairs(PaperTable(title="", cells=cells), [{}] * len(cells))}
    above = ("MNIST, a", "MNIST, b")
    assert said == {f"{one} above {other}, c" for one in above for other in ("MNIST, c", "MNIST, d")}
    assert pairs(PaperTable(title="", cells=cells, order="none"), [{}] * len(cells)) == ()


def test_rows_are_compared_where_they_are_asked_for() -> None:
    cells = (Cell(row="a", column="2", paper=80, run="x"), Cell(row="a", column="5", paper=90, run="y"))
    assert pairs(PaperTable(title="", cells=cells), [{}, {}]) == ()
    (pair,) = pairs(PaperTable(title="", cells=cells, order="rows"), [{}, {}])
    assert pair.words == "5 above 2, a"


def test_each_kind_is_counted_once() -> None:
    cells = (
        CellStanding(cell(90, row="a"), {0: 90.0}),
        CellStanding(cell(90, row="b"), {0: 95.0}),
        CellStanding(cell(90, row="c"), {}),
        CellStanding(cell(90, row="d", better="neither"), {0: 95.0}),
        CellStanding(cell(90, row="e", kind="repeat"), {0: 90.0}),
        CellStanding(cell(3, "up", row="f", kind="accounting"), {0: 3.0}),
        CellStanding(cell(3, "up", row="g", kind="accounting"), {0: 1.0}),
    )
    claims = (
        ClaimStanding(Claim(text="", more={"a": "accuracy", "b": "accuracy"}), {"a": {0: 2.0}, "b": {0: 1.0}}),
        ClaimStanding(
            Claim(text="", more={"a": "accuracy", "b": "accuracy"}, of="ours"),
            {"a": {0: 2.0, 1: 2.0}, "b": {0: 1.0, 1: 1.0}},
        ),
    )
    table = PaperTable(title="", cells=tuple(one.cell for one in cells))
    found = count([TableStanding("t", table, cells, claims)])
    assert (found.agrees, found.better, found.worse, found.waiting) == (1, 1, 1, 1)
    assert (found.accounting, found.repeats) == ((2, 1), 1)
    assert (found.claims.open, found.claims.listed, found.own.holds, found.own.listed) == (1, 1, 1, 1)
