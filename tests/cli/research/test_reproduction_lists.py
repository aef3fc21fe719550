"""The lists of the papers' cells, and of their quick looks."""

from __future__ import annotations

import math

import pytest
from pydantic import ValidationError

from colonnade.common.errors import ConfigError, InputError
from colonnade.common.parsing.file import load
from colonnade.reproduction.papers.papers import Cell, Claim, Excluded, Paper, PaperRun, chosen, names, read_paper

QUICK = PaperRun(file="demo.yaml", set=("federation.epochs=1",), minutes=0.1)


@pytest.mark.parametrize("quick", [False, True])
def test_every_run_is_a_configuration(quick: bool) -> None:
    for _name, paper in chosen("", quick=quick):
        for run in paper.runs.values():
            load(run.path, run.set)  # raises if a key or a value is wrong


def test_the_five_papers_are_there_and_have_quick_looks() -> None:
    assert names() == names(quick=True) == ["afe", "czofo", "fedvs", "vfedmh", "vim"]


def test_nothing_is_left_out_for_a_reason_that_is_none() -> None:
    words = [out.reason for _name, paper in chosen("") for t in paper.tables.values() for out in t.excluded]
    assert words
    assert all(len(word) > 8 for word in words)


def test_one_table_has_the_runs_that_it_needs() -> None:
    ((_, paper),) = chosen("vim/table3")
    assert set(paper.runs) == {"vimadmm", "linear_admm"}


@pytest.mark.parametrize(("which", "nearest"), [("wim", "vim"), ("vim/tabel3", "table3")])
def test_a_wrong_name_names_the_nearest(which: str, nearest: str) -> None:
    with pytest.raises(InputError, match=nearest):
        list(chosen(which))


def test_a_cell_of_an_unknown_run_is_refused() -> None:
    cell = {"row": "a", "column": "b", "paper": 1.0, "run": "other"}
    with pytest.raises(ConfigError, match="other"):
        Paper.model_validate({"cite": "", "runs": {"one": QUICK}, "tables": {"t": {"title": "", "cells": [cell]}}})


def test_a_note_on_all_cells_stays_with_one_table(monkeypatch: pytest.MonkeyPatch) -> None:
    paper = read_paper("vim").model_copy(update={"note": "Ten epochs."})
    monkeypatch.setattr("colonnade.reproduction.papers.papers.read_paper", lambda _name, *, quick: paper)
    ((_, asked),) = chosen("vim/table3")
    assert asked.note == "Ten epochs."


@pytest.mark.parametrize("spread", [-0.1, math.inf, math.nan])
def test_a_spread_that_is_none_is_refused(spread: float) -> None:
    with pytest.raises(ValidationError, match="spread"):
        Cell(row="", column="", paper=1, spread=spread, run="x")


@pytest.mark.parametrize(
    ("what", "cells", "why", "said"),
    [
        ("CIFAR-10", 4, "gpu", "4 cells, CIFAR-10: needs a GPU"),
        ("(b): needs a GPU", 1, "gpu", "1 cell, (b): needs a GPU"),
        ("(c)", 2, "no words", "2 cells, (c): no words"),
    ],
)
def test_omitted_cells_state_their_reason_once(what: str, cells: int, why: str, said: str) -> None:
    assert Excluded(what=what, cells=cells, why=why).words == said


def test_a_claim_compares_at_least_two() -> None:
    with pytest.raises(ConfigError, match="two runs"):
        Claim(text="alone", more={"one": "accuracy"})
