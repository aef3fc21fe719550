"""The pieces of a report: the clock, thinned curves, strips, escaping, numbers in words."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from colonnade.reports.html.charts import Axis, Bar, row_chart
from colonnade.reports.html.page import Html
from colonnade.reports.records.run import Clock, read_run
from colonnade.reports.run_page.charts import charts, thin
from colonnade.reports.run_page.presence import cover
from colonnade.reports.words import amount, seconds
from tests.cli.read.reports import EVENTS, Page, evaluated, event, leave, round_of


def test_rounds_after_a_rollback_count_as_they_were_done_again(tmp_path: Path) -> None:
    again = [event("rollback", 7, party="ada", round=6, reason="x"), event("begin", 7.5, round=2, rounds=6),
             *(round_of(number, loss=9.0, after=6) for number in (3, 4))]  # fmt: skip
    trace = read_run(leave(tmp_path / "run", events=EVENTS[:-1] + again)).trace
    assert [(at.round, at.value) for at in trace.series["train_loss"]] == [(1, 1.0), (2, 0.5), (3, 9.0), (4, 9.0)]
    assert [at.round for at in trace.series["val_accuracy"]] == [2] and not trace.series["test_accuracy"]
    assert list(trace.ends) == [1, 2, 3, 4]


def test_the_night_between_two_starts_is_not_in_the_seconds() -> None:
    events = [event(*of) for of in (("listening", 0), ("round", 5), ("listening", 1000), ("round", 1002))]
    clock = Clock(events)
    assert [clock.seconds(each["time"]) for each in events] == [0, 5, 5, 7]
    assert (clock.starts, clock.paused, clock.end) == (2, 995, 7)
    assert Clock([{"kind": "round", "time": 0.5}], virtual=True).end == 0.5 and Clock([]).end == 0


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=80), st.integers(4, 10))
@example([0.0, 1.0, 2.0, 5.0, 2.0, 1.0, -4.0, 0.0], 6)
def test_thinning_keeps_ends_order_and_extremes(values: list[float], most: int) -> None:
    points = list(enumerate(values))
    kept = thin(points, lambda point: point[1], most)
    assert len(kept) <= most and set(kept) <= set(points) and kept == sorted(kept)
    assert kept[0] == points[0] and kept[-1] == points[-1]
    assert {max(values), min(values)} <= {value for _, value in kept}


@given(st.lists(st.tuples(st.floats(0, 10), st.floats(0, 10)).map(sorted), max_size=6), st.integers(1, 50))
def test_a_strip_covers_as_much_as_its_intervals(intervals: list[list[float]], slices: int) -> None:
    ends = sorted(edge for pair in intervals for edge in pair)
    apart = list(zip(ends[::2], ends[1::2], strict=True))
    shares = cover(apart, 10.0, slices)
    assert len(shares) == slices and all(0 <= share <= 1 for share in shares)
    assert sum(shares) * 10 / slices == pytest.approx(sum(stop - begin for begin, stop in apart), abs=1e-6)


@example(values=[5e-324], losses=[])  # no axis has so small a step
@example(values=[0.84, 0.76], losses=[])  # the round number below 0.76 comes out a hair above it
@given(values=st.lists(st.floats(0, 1), min_size=1, max_size=30), losses=st.lists(st.floats(0, 1e9), max_size=30))
def test_no_point_falls_out_of_a_picture(values: list[float], losses: list[float]) -> None:
    events = [EVENTS[0], *(evaluated(number, "validation", value, 1.0) for number, value in enumerate(values, 1)),
              *(round_of(number, loss) for number, loss in enumerate(losses, 1))]  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        made = Page(charts(read_run(leave(Path(folder) / "run", events=events))))
    lengths = [len(line) for line in made.lines("round")]
    assert lengths == [len(values), len(values), *([len(losses)] if losses else [])]


@given(st.text(st.sampled_from("<>&\"'/a b")))
def test_whatever_is_written_is_text(words: str) -> None:
    made = Page(row_chart([Bar(words, 1.0, Html("<b>x</b>"))], Axis(words, str), caption=words))
    assert made.rows[0] == [words, "", "x"] and made.rows[1][0] == words
    assert [name for name, _ in made.tags].count("b") == 1 and not {"a", "script"} & {name for name, _ in made.tags}


def test_amounts_and_times() -> None:
    assert [amount(size) for size in (0, 999, 1000, 999_949, 999_950, 1_234_567, 5e13)] == [
        "0 B", "999 B", "1.0 kB", "999.9 kB", "1.0 MB", "1.2 MB", "50.0 TB"]  # fmt: skip
    assert [seconds(value) for value in (0.0, 9.514, 123.4, 3661, 7199)] == [
        "0 s", "9.51 s", "123 s", "1 h 1 min", "2 h 0 min"]  # fmt: skip
