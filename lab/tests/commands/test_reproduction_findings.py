"""Sentences of the summary: none stands under a heading that the results do not support."""

from __future__ import annotations

import math
from typing import Any

import pytest

from colonnade.common.errors import ConfigError
from colonnade_lab.pages.findings import Texts, agreement, findings, support
from colonnade_lab.papers.measures import Point, RunRecord
from colonnade_lab.papers.paper_comparison import CellStanding, stand
from colonnade_lab.papers.papers import Cell, Paper

AHEAD, OURS = "t: one is ahead", "t: one is ahead, says ours"
BOTH = {"more": {"one": "accuracy", "two": "accuracy"}}
TABLE = {
    "title": "",
    "cells": [{"row": "a", "column": "b", "paper": 90, "digits": 0, "run": "one"}],
    "claims": [{"text": "one is ahead", **BOTH}, {"text": "one is ahead, says ours", **BOTH, "of": "ours"}],
}


def record(accuracy: float, looks: tuple[float, ...] = ()) -> RunRecord:
    points = tuple(
        Point(round=at, epoch=at, seconds=at, bytes=10**6 * at, accuracy=look) for at, look in enumerate(looks, 1)
    )
    metrics = {"test_accuracy": accuracy / 100}
    return RunRecord(metrics=metrics, points=points, rounds=1, parties=1, bytes_up=1, bytes_down=1, wall=1)


def paper(**finding: list[dict[str, Any]]) -> Paper:
    run = {"file": "demo.yaml", "minutes": 1}
    tree = {"cite": "", "called": "P", "runs": {"one": run, "two": run}, "tables": {"t": TABLE}, "finding": finding}
    return Paper.model_validate(tree)


def summary(listed: Paper, one: tuple[float, ...], two: tuple[float, ...]) -> str:
    """The sections, where these are the accuracies of the two runs, one a seed."""
    kept = {("one", seed): record(value) for seed, value in enumerate(one)}
    kept |= {("two", seed): record(value) for seed, value in enumerate(two)}

    def find(run: str, seed: int) -> RunRecord | None:
        return kept.get((run, seed))

    return findings({"p": Texts(listed, stand(listed, find, 3), find, 3)})


@pytest.mark.parametrize(
    ("kind", "claim", "one", "two", "heading"),
    [
        ("held", AHEAD, (91, 92.1), (81, 82), "What held"),
        ("held", AHEAD, (81, 82), (91, 92.1), "What is open"),  # reversed
        ("held", AHEAD, (91,), (81,), "What is open"),  # one seed
        ("held", AHEAD, (91, 92), (81, 82), "What is open"),  # equal leads: a coincidence
        ("held", AHEAD, (91, 80), (81, 92), "What is open"),
        ("failed", AHEAD, (81, 82), (91, 92.1), "What did not hold"),
        ("failed", AHEAD, (91, 92.1), (81, 82), "What is open"),
        ("failed", OURS, (91, 92.1), (81, 82), "What did not hold"),  # ours says what is so
        ("failed", OURS, (81, 82), (91, 92.1), "What is open"),
        ("new", OURS, (91, 92.1), (81, 82), "What is new"),
        ("new", OURS, (81, 82), (91, 92.1), "What is open"),
        ("held", "t: a, b", (90, 90.1), (1, 1), "What held"),
        ("held", "t: a, b", (70, 70.1), (1, 1), "What is open"),
        ("failed", "t: a, b", (70, 70.1), (1, 1), "What did not hold"),
        ("failed", "t: a, b", (90, 70), (1, 1), "What is open"),
    ],
)
def test_a_sentence_moves_with_its_results(
    kind: str, claim: str, one: tuple[float, ...], two: tuple[float, ...], heading: str
) -> None:
    listed = paper(**{kind: [{"text": "A sentence, {one.accuracy}.", "rests_on": [claim]}]})
    found = summary(listed, one, two)
    assert [line for line in found.splitlines() if line.startswith("## ")] == [f"## {heading}"]
    assert ("*Said to" in found or "*Said not to" in found) is (heading == "What is open")


def test_all_that_a_sentence_rests_on_has_to_support_it() -> None:
    listed = paper(held=[{"text": "Both.", "rests_on": [AHEAD, "t: a, b"]}])
    assert "## What held" in summary(listed, (90, 90.1), (80, 80.2))
    assert "1 supports it and 1 contradicts it" in summary(listed, (95, 95.1), (80, 80.2))


@pytest.mark.parametrize("text", ["Later.", "Later, {two.accuracy}."])
def test_a_sentence_that_waits_for_runs_is_counted_and_not_shown(text: str) -> None:
    evidence = AHEAD if text == "Later." else "t: a, b"
    found = summary(paper(held=[{"text": text, "rests_on": [evidence]}]), (90, 90.1), ())
    assert "Later" not in found
    assert "1 sentence waits for runs." in found


def test_a_measurement_without_a_claim_stands_under_new() -> None:
    assert "## What is new" in summary(paper(new=[{"text": "Measured: {one.accuracy}."}]), (90,), ())


@pytest.mark.parametrize(
    ("kind", "sentence", "said"),
    [
        ("held", {"text": "A sentence."}, "no result decides it"),
        ("failed", {"text": "A sentence."}, "no result decides it"),
        ("held", {"text": "A sentence.", "rests_on": ["t: one is ahaed"]}, "did you mean 'one is ahead'"),
        ("held", {"text": "A sentence.", "rests_on": ["u: one is ahead"]}, "no table 'u'"),
        ("held", {"text": "A sentence.", "rests_on": [OURS]}, "beyond the paper"),
        ("new", {"text": "A sentence.", "rests_on": [AHEAD]}, "is the paper's"),
        ("new", {"text": "A sentence.", "rests_on": ["t: a, b"]}, "is the paper's"),
    ],
)
def test_a_sentence_that_nothing_can_decide_is_refused(kind: str, sentence: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        paper(**{kind: [sentence]})


def test_an_argument_on_a_page_needs_no_result() -> None:
    found = summary(paper(failed=[{"text": "No guarantee: [why](../security.md)."}]), (), ())
    assert found.startswith("## What did not hold")


@pytest.mark.parametrize(
    ("ours", "said"),
    [
        ((), None),
        ((90.0,), "open"),
        ((90.0, 90.1, 89.9), "holds"),
        ((91.4, 91.5, 91.6), "open"),  # the mean agrees, the interval leaves the slack
        ((80.0, 80.1, 80.2), "reversed"),
        ((99.0, 99.1, 99.2), "reversed"),
        ((math.inf, 90.0, 90.0), "open"),
    ],
)
def test_a_value_agrees_with_its_whole_interval(ours: tuple[float, ...], said: str | None) -> None:
    cell = Cell(row="", column="", paper=90, digits=0, run="one")
    assert agreement(CellStanding(cell, dict(enumerate(ours)))) == said


def test_support_is_counted() -> None:
    listed = paper(held=[{"text": "All.", "rests_on": [AHEAD, "t: a, b"]}])
    tables = stand(listed, lambda run, seed: record(90 + 0.1 * seed if run == "one" else 80), 3)
    found = support(listed.finding.held[0], "held", tables)
    assert (found.supports, found.contradicts, found.open, found.waiting) == (2, 0, 0, 0)
    assert found.stands


@pytest.mark.parametrize(
    ("listed", "looks", "kind"),
    [
        ("result", ((0.97, 0.98), (0.96, 0.97)), "accounting"),  # all seeds were there at their first look
        ("accounting", ((0.97, 0.98), (0.9, 0.97)), "result"),
        ("accounting", (), "accounting"),
        ("repeat", ((0.97,),), "repeat"),
    ],
)
def test_bytes_at_the_first_look_are_accounting(listed: str, looks: tuple[tuple[float, ...], ...], kind: str) -> None:
    cell = {"row": "a", "column": "b", "paper": 3.0, "run": "one", "measure": "mib@95", "kind": listed}
    run = {"file": "demo.yaml", "minutes": 1}
    read = Paper.model_validate({"cite": "", "runs": {"one": run}, "tables": {"t": {"title": "", "cells": [cell]}}})
    seeds = dict(enumerate(looks))
    (table,) = stand(read, lambda _run, seed: record(97, seeds[seed]) if seed in seeds else None, 3)
    assert (table.cells[0].cell.kind, table.table.cells[0].kind) == (kind, kind)


def test_bytes_of_so_many_epochs_stay_what_the_list_says() -> None:
    cells = [
        {"row": "a", "column": each, "paper": 3.0, "run": "one", "measure": each, "kind": kind}
        for each, kind in (("mb@100epochs", "accounting"), ("mb", "result"))
    ]
    run = {"file": "demo.yaml", "minutes": 1}
    read = Paper.model_validate({"cite": "", "runs": {"one": run}, "tables": {"t": {"title": "", "cells": cells}}})
    (table,) = stand(read, lambda _run, _seed: record(97, (0.9, 0.97)), 2)
    assert [one.cell.kind for one in table.cells] == ["accounting", "result"]
