"""The live region and what it becomes in a pipe, on a clock of the test."""

from __future__ import annotations

import io
import re

import pytest
from rich.cells import cell_len

from colonnade.common.run.activity import Activity, activity, under_way
from colonnade.reports.console.live import SOON, LiveRegion, moving_line, plain_line
from colonnade.reports.console.progress import PartyProgress, Progress
from colonnade.reports.console.screen import Screen
from tests.support.terminal import lines_of

pytestmark = pytest.mark.usefixtures("no_garbage")  # runs that other tests have dropped are under way until collected

WIDTHS = (60, 80, 120, 200)
NAME = "a-party-with-a-name-that-is-longer-than-any-line-of-progress-may-be"


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def terminal(width: int) -> tuple[Screen, io.StringIO]:
    shown = io.StringIO()
    return Screen(file=shown, force_terminal=True, width=width), shown


def round_event(number: int, **more: object) -> dict[str, object]:
    return {
        "kind": "round", "round": number, "rounds": 100_000, "epoch": 3.25, "loss": 0.31234, "bytes_up": 245_000_000,
        "bytes_down": 179_000_000, "slowest": {"party": NAME, "seconds": 0.25}, **more,
    }  # fmt: skip


def evaluation_event(**scores: float) -> dict[str, object]:
    return {"kind": "evaluation", "part": "validation", **scores}


@pytest.mark.parametrize("width", WIDTHS)
def test_a_rounds_line_fits_and_the_most_important_is_first(width: int) -> None:
    screen, _ = terminal(width)
    progress = Progress(screen)
    progress(evaluation_event(val_auc=0.91, val_accuracy=0.85))
    progress(round_event(40_000))
    (one,) = under_way()
    plain = plain_line(one, one.begun + 60, width)
    moving = moving_line(one, one.begun + 60, width)
    progress.close()
    assert cell_len(plain) <= width and moving.cell_len <= width
    assert plain.startswith("training  40000/100000 rounds  ") and " left" in plain
    assert ("loss 0.3123" in plain) and ("AUC 0.91" in plain) == (width >= 80)
    assert ("slowest a-party-with-a-…" in plain) == (width >= 200)
    assert NAME not in plain
    assert not under_way()


@pytest.mark.parametrize("width", WIDTHS)
def test_long_words_of_anybody_are_cut(width: int) -> None:
    one = Activity(f"reading {NAME}{NAME}{NAME}.csv", 7, "rows\x1b[2J", facts=("\x1b]0;owned\x07",), begun=0.0)
    for line in (plain_line(one, 9.0, width), moving_line(one, 9.0, width).plain):
        assert cell_len(line) <= width and "…" in line and "\x1b" not in line and "\x07" not in line


def test_the_time_left_is_of_this_start() -> None:
    one = Activity("predicting", total=1000, done=910, kept=900, begun=0.0)
    assert one.left(5.0) == 45.0
    assert "45 s left" in plain_line(one, 5.0, 80)
    one.done = 900
    assert one.left(5.0) is None and plain_line(one, 5.0, 80).endswith("  5 s")


def test_a_terminal_shows_the_outermost_and_the_innermost_and_clears_both() -> None:
    screen, shown = terminal(80)
    clock = Clock()
    with LiveRegion(screen, clock, ticking=False) as region:
        with activity("searching", 10, "trials") as outer, activity("trial 3"), activity("reading bank.csv") as inner:
            outer.begun = inner.begun = 0.0
            outer.done = 4
            region.draw()
            assert not shown.getvalue()  # too soon
            clock.now = SOON
            region.draw()
            screen.say("a line above")
        region.draw()
        before = shown.getvalue()
        region.draw()
        assert shown.getvalue() == before
    lines = lines_of(shown.getvalue())
    assert any("searching" in line and "4/10 trials" in line for line in lines)
    assert any("reading bank.csv" in line for line in lines) and not any("trial 3" in line for line in lines)
    assert "a line above" in lines


def test_a_pipe_gets_fewer_and_fewer_lines_of_the_outermost() -> None:
    printed, clock = io.StringIO(), Clock()
    screen = Screen(file=printed, width=80)
    with LiveRegion(screen, clock, ticking=False) as region, activity("training", 3600) as outer, activity("reading"):
        outer.begun = 0.0
        for second in range(3600):
            clock.now, outer.done = float(second), second
            region.draw()
            if second == 4:
                assert not printed.getvalue()
    lines = printed.getvalue().splitlines()
    assert 10 < len(lines) < 60 and all(line.startswith("training  ") for line in lines)
    assert lines[0] == "training  5/3600  60 min left" and not re.search("[\x1b\r]", printed.getvalue())


def test_what_takes_no_time_is_not_shown_in_a_pipe() -> None:
    printed, clock = io.StringIO(), Clock()
    with LiveRegion(Screen(file=printed), clock, ticking=False) as region:
        for number in range(1000):
            clock.now += 1.0
            with activity(f"trial {number}") as one:
                one.begun = clock.now
                region.draw()
    assert not printed.getvalue()


def test_a_run_that_nobody_holds_is_not_under_way() -> None:
    progress = Progress(Screen(file=io.StringIO()))
    progress(round_event(1))
    assert [one.what for one in under_way()] == ["training"]
    del progress
    assert not under_way()


def test_a_party_trains_from_its_begin_to_its_end() -> None:
    printed = io.StringIO()
    progress = PartyProgress(Screen(file=printed), "ada")
    progress({"kind": "begin", "round": 0, "rounds": 200})
    progress({"kind": "checkpoint", "round": 50, "rounds": 200})
    (one,) = under_way()
    assert (one.what, one.done, one.total) == ("training", 50, 200)
    progress({"kind": "end", "round": 200})
    assert not under_way() and printed.getvalue().splitlines() == [
        "ada: begins after round 0 of 200", "ada: done after round 200",
    ]  # fmt: skip
