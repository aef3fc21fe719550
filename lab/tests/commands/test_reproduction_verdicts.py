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

from colonnade_lab.pages.counts import count
from colonnade_lab.papers.intervals import Value, decide, interval, paired
from colonnade_lab.papers.measures import Point, RunRecord, lower_is_better, possible, value
from colonnade_lab.papers.paper_comparison import CellStanding, ClaimStanding, TableStanding, pairs
from colonnade_lab.papers.papers import Cell, Claim, PaperTable

MEASURES = st.sampled_from(["accuracy", "auc", "own@party1", "deviation", "mb@95", "seconds@80", "up", "rounds@90"])
VALUES = st.floats(0, 1000, allow_nan=False)
SEVERAL = st.lists(st.floats(0, 100), min_size=3, max_size=3)


def around(middle: float, spread: float) -> dict[int, float]:
    """Three seeds with this mean and deviation."""
    return {0: middle - spread, 1: middle, 2: middle + spread}


def cell(paper: float, measure: str = "accuracy", row: str = "a", **more: object) -> Cell:
    return Cell(row=row, column="c", paper=paper, run=row, measure=measure, **more)  # type: ignore[arg-type]


@given(VALUES, VALUES, MEASURES, st.floats(0.001, 0.1))
def test_a_worse_value_is_never_one_that_agrees(ours: float, paper: float, measure: str, spread: float) -> None:
    one = cell(round(paper, 2), measure, digits=2)
    found = CellStanding(one, around(ours, spread)).verdict
    slack = {"accuracy": 1.0, "auc": 1.0, "own": 1.0, "deviation": 0.25}.get(measure.partition("@")[0])
    off, margin = abs(ours - one.paper), (one.paper / 100 if slack is None else slack) + 0.005
    half = 4.302653 * spread / math.sqrt(3)
    if off - half > margin + 1e-6:
        assert found == ("better" if (ours < one.paper) == lower_is_better(measure) else "worse")
    elif off + half < margin - 1e-6:
        assert found == "agrees"
    elif off - half < margin - 1e-6 and off + half > margin + 1e-6:
        assert found == "undecided"


@given(VALUES, VALUES, MEASURES)
def test_where_only_agreement_counts_nothing_is_better(ours: float, paper: float, measure: str) -> None:
    found = CellStanding(cell(round(paper, 2), measure, better="neither"), around(ours, 0.01)).verdict
    assert found in {"agrees", "differs", "undecided"}


@given(VALUES, VALUES, MEASURES, st.sampled_from(["result", "repeat", "shown"]))
def test_one_seed_never_decides(ours: float, paper: float, measure: str, kind: str) -> None:
    seed = {0: Value.of(ours, 0.1)}
    assert CellStanding(cell(round(paper, 2), measure, kind=kind), seed).verdict == "undecided"
    assert decide(tuple(paired(seed, {0: Value.of(paper, 0.1)}))) == "open"


@given(st.floats(0.01, 10), st.floats(0, 0.999), st.floats(-50, 50))
def test_equal_leads_of_two_seeds_are_undecided_within_the_floor(floor: float, share: float, least: float) -> None:
    """The interval of two seeds is 12.7 deviations over the root of two on either side, and never of no width."""
    reach = 12.706205 * floor / math.sqrt(2)
    for side in (1, -1):
        lead = Value.of(least + side * share * reach, floor)
        assert decide((lead, lead), least) == "open"
        far = Value.of(least + side * 1.01 * reach, floor)
        assert (decide((far, far), least) == "holds") is (side > 0)
        assert decide((far, far), least) != "open"


@given(st.floats(-100, 100), st.integers(2, 6), st.floats(-50, 50))
def test_equal_numbers_without_a_floor_decide_nothing(lead: float, seeds: int, least: float) -> None:
    assert decide((lead,) * seeds, least) == "open"
    assert CellStanding(cell(50), dict.fromkeys(range(seeds), lead)).verdict == "undecided"


@given(st.lists(st.integers(-500, 500), min_size=1, max_size=5), st.integers(0, 40), st.integers(-8, 8))
def test_verdicts_are_the_same_in_every_unit(leads: list[int], floor: int, power: int) -> None:
    scale = 2.0**power
    scaled = tuple(Value.of(scale * lead, scale * floor) for lead in leads)
    assert decide(scaled, 4 * scale) == decide(tuple(Value.of(lead, floor) for lead in leads), 4)


@given(st.lists(st.floats(-20, 20), min_size=2, max_size=5), st.floats(0.01, 3), st.floats(0, 3))
def test_a_larger_floor_decides_no_more(leads: list[float], floor: float, more: float) -> None:
    wide = decide(tuple(Value.of(lead, floor + more) for lead in leads))
    assert wide in {"open", decide(tuple(Value.of(lead, floor) for lead in leads))}


@pytest.mark.parametrize(
    ("leads", "least", "said"),
    [
        ((2.0, 2.1, 1.9), 5.0, "not reached"),  # ahead, and by too little
        ((0.1, -0.1, 0.0), 5.0, "not reached"),
        ((-2.0, -2.1, -1.9), 5.0, "reversed"),
        ((-5.0, -5.1, -5.1), -3.0, "not reached"),  # further behind than it may be
        ((-2.0, -2.1, -1.9), 0.0, "reversed"),
        ((7.0, 7.1, 6.9), 5.0, "holds"),
        ((5.0, 5.1, 4.9), 5.0, "open"),
    ],
)
def test_a_lead_that_is_short_is_not_a_reversed_order(leads: tuple[float, ...], least: float, said: str) -> None:
    assert decide(leads, least) == said


@pytest.mark.parametrize("accuracy", [0.0, 0.3, 0.97, 1.0])
def test_shares_have_the_binomial_error_of_their_test_rows(accuracy: float) -> None:
    made = RunRecord(
        metrics={"test_accuracy": accuracy},
        points=(),
        tested=400,
        rounds=1,
        parties=1,
        bytes_up=1,
        bytes_down=1,
        wall=1,
    )
    found, error = value(made, "accuracy").floor, 100 * math.sqrt(accuracy * (1 - accuracy) / 400)
    assert found > 0 and found == pytest.approx(error, abs=0.25)
    assert value(made.model_copy(update={"tested": 40_000}), "accuracy").floor < found
    two = {0: value(made, "accuracy"), 1: value(made, "accuracy")}
    found_interval = interval(tuple(two.values()))
    assert found_interval.low is not None and found_interval.low < 100 * accuracy


def test_costs_to_an_accuracy_are_between_two_looks() -> None:
    points = tuple(Point(round=at, epoch=at, seconds=at, bytes=10**6 * at, accuracy=at / 4) for at in (1, 2, 3))
    made = RunRecord(metrics={}, points=points, rounds=3, parties=1, bytes_up=1, bytes_down=1, wall=1)
    there, never = value(made, "mb@50"), value(made, "mb@90")
    assert (there, there.floor) == (2.0, pytest.approx(1 / math.sqrt(12)))
    assert math.isinf(never) and never.ended == 3.0


def test_a_run_that_was_stopped_early_is_behind_nobody() -> None:
    stopped, later = Value.of(math.inf, ended=3.0), Value.of(5.0, 0.1)
    assert decide(paired(dict.fromkeys(range(3), later), dict.fromkeys(range(3), stopped))) == "open"
    sooner = Value.of(2.0, 0.1)
    assert decide(paired(dict.fromkeys(range(3), stopped), dict.fromkeys(range(3), sooner))) == "holds"
    assert decide(paired(dict.fromkeys(range(2), stopped), dict.fromkeys(range(2), sooner))) == "open"


@given(SEVERAL, SEVERAL)
def test_the_order_of_a_pair_turns_with_its_values(first: list[float], second: list[float]) -> None:
    table = PaperTable(title="", cells=(cell(90, row="a"), cell(80, row="b")))
    one, other = dict(enumerate(first)), dict(enumerate(second))
    (forth,), (back,) = pairs(table, (one, other)), pairs(table, (other, one))
    assert (forth.above.row, back.above.row) == ("a", "a")
    turned = {"holds": "reversed", "reversed": "holds", "open": "open"}
    assert back.outcome == turned[forth.outcome or ""]


@settings(max_examples=25)
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
        ((1.0, 1.0), "open"),  # a coincidence
        ((0.0, 0.0), "open"),
        ((math.inf, 3.0), "open"),  # of two runs one never got there, and the other was later
        ((math.inf, 3.0, 3.0), "holds"),
        ((math.inf, -3.0, -3.0), "open"),
        ((-math.inf, -math.inf), "open"),
        ((-math.inf,) * 3, "reversed"),
        ((math.nan, 3.0), "open"),
    ],
)
def test_special_leads(leads: tuple[float, ...], said: str) -> None:
    assert decide(leads) == said


@given(st.lists(st.floats(0, 100), min_size=2, max_size=3, unique=True))
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
        CellStanding(cell(90, row="a"), around(90, 0.1)),
        CellStanding(cell(90, row="b"), around(95, 0.1), proposal=False),
        CellStanding(cell(90, row="c"), {}),
        CellStanding(cell(90, row="d", better="neither"), around(95, 0.1)),
        CellStanding(cell(90, row="e", kind="repeat"), around(90, 0.1)),
        CellStanding(cell(90, row="f"), {0: 95.0}),  # one seed
        CellStanding(cell(90, row="g"), around(80, 0.1), proposal=False),
        CellStanding(cell(3, "up", row="h", kind="accounting"), {0: 3.0}),
        CellStanding(cell(3, "up", row="i", kind="accounting"), {0: 1.0}),
    )
    claims = (
        ClaimStanding(Claim(text="", more={"a": "accuracy", "b": "accuracy"}), {"a": {0: 2.0}, "b": {0: 1.0}}),
        ClaimStanding(
            Claim(text="", more={"a": "accuracy", "b": "accuracy"}, by=9, of="ours"),
            {"a": around(12, 0.1), "b": around(10, 0.2)},
        ),
    )
    table = PaperTable(title="", cells=tuple(one.cell for one in cells))
    found = count([TableStanding("t", table, cells, claims)])
    assert found.proposals == {"agrees": 1, "differs": 1, "undecided": 1, None: 1}
    assert found.others == {"better": 1, "worse": 1}
    assert (found.shapes, found.repeats) == ({"agrees": 1, "differs": 1}, 1)
    assert (found.claims, found.own) == ({"open": 1}, {"not reached": 1})
