"""The lists of the papers' cells, and of their quick looks; that of VFL-CZOFO has its paper's units and quantities."""

from __future__ import annotations

import math

import pytest
from pydantic import ValidationError

from colonnade.common.errors import ConfigError, InputError
from colonnade.common.parsing.file import load
from colonnade.launcher.demo import EXPERIMENTS
from colonnade_lab.papers.measures import RunRecord, unit, value
from colonnade_lab.papers.papers import (
    Cell,
    Claim,
    Excluded,
    Paper,
    PaperRun,
    PaperTable,
    chosen,
    names,
    read_paper,
)
from colonnade_lab.papers.running import Course, run_record
from lab.tests.commands.idle import idle_claims

NOISE = "federation.privacy={clip: 0.05, epsilon: 8, delta: 1.0e-5}"
QUICK = PaperRun(file="demo.yaml", set=("federation.epochs=1",), minutes=0.1)


@pytest.mark.parametrize("quick", [False, True])
def test_every_run_is_a_configuration(quick: bool) -> None:
    for _name, paper in chosen("", quick=quick):
        for run in paper.runs.values():
            load(run.path, run.set)  # raises if a key or a value is wrong


def test_the_five_papers_are_there_and_have_quick_looks() -> None:
    assert names() == names(quick=True) == ["afe", "czofo", "fedvs", "vfedmh", "vim"]


@pytest.mark.parametrize("quick", [False, True])
def test_every_claim_can_fail(quick: bool) -> None:
    assert [idle for _name, paper in chosen("", quick=quick) for idle in idle_claims(paper)] == []


@pytest.mark.parametrize(
    ("first", "other", "claim", "said"),
    [
        ((), ("every_party.chaos.delay=1s",), {}, "chaos alone"),
        (("every_party.chaos.delay=1s",), (), {}, ""),  # the disturbed one is to win, and may fail
        ((), ("every_party.chaos.delay=1s", "federation.quorum={deadline: 0.5}"), {}, ""),
        ((), (NOISE,), {}, "privacy alone"),
        ((), (NOISE,), {"by": 20}, ""),
        ((NOISE,), (), {"within": 1}, ""),
        ((), (), {}, "one run"),
        ((), ("federation.seed=1",), {}, ""),
    ],
)
def test_a_claim_that_cannot_fail_is_named(
    first: tuple[str, ...], other: tuple[str, ...], claim: dict[str, float], said: str
) -> None:
    runs = {
        "a": PaperRun(file="demo.yaml", set=first, minutes=1),
        "b": PaperRun(file="demo.yaml", set=other, minutes=1),
    }
    ahead = Claim(text="ahead", more={"a": "accuracy", "b": "accuracy"}, **claim)
    paper = Paper(cite="", runs=runs, tables={"t": PaperTable(title="", claims=(ahead,))})
    found = list(idle_claims(paper))
    assert bool(found) == bool(said)
    assert all(said in each for each in found)


@pytest.mark.parametrize(
    ("first", "other", "computing", "idle"),
    [
        ((4, 1), (4, 9), "", True),
        ((1, 1), (6, 1), "", True),
        ((1, 1), (6, 1), "1Gop/s", False),  # K = 1 computes the whole batch
        ((4, 9), (4, 1), "", False),  # the one that waits for more is to win
        ((6, 1), (1, 9), "", False),  # waits for fewer, but its shares are later
    ],
)
def test_waiting_for_fewer_responses_cannot_be_slower(
    first: tuple[int, int], other: tuple[int, int], computing: str, idle: bool
) -> None:
    charged = (f"every_party.chaos.computing={computing}",) if computing else ()
    runs = {
        name: PaperRun(
            file="fedvs/stragglers.yaml",
            set=(f"federation.protocol.segments={segments}", f"federation.protocol.masks={masks}", *charged),
            minutes=1,
        )
        for name, (segments, masks) in (("a", first), ("b", other))
    }
    faster = Claim(text="faster", fewer={"a": "seconds@75", "b": "seconds@75"})
    paper = Paper(cite="", runs=runs, tables={"t": PaperTable(title="", claims=(faster,))})
    assert ["waits for fewer responses" in each for each in idle_claims(paper)] == [True] * idle


@pytest.mark.parametrize(
    ("what", "why", "tried", "said"),
    [
        ("MNIST", "data", "", "MNIST is in the catalogue"),
        ("NUS-WIDE, CIFAR-10", "data", "", "CIFAR-10 is in the catalogue"),
        ("UCI", "data", "", "UCI is in the catalogue"),
        ("all", "budget", "", "tried: missing"),
        ("all", "repeat", "", "tried: missing"),
        ("all", "a curve", "", "tried: missing"),
        ("CIFAR-10", "gpu", "", "name the model"),
    ],
)
def test_an_exclusion_without_a_tried_reason_is_refused(what: str, why: str, tried: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        Excluded(what=what, cells=1, why=why, tried=tried)


def test_a_data_set_that_resembles_a_listed_one_may_be_left_out() -> None:
    assert "not to be had" in Excluded(what="EMNIST, NUS-WIDE", cells=1, why="data").words


def test_the_printed_digits_are_kept() -> None:
    found = [cell for _name, paper in chosen("czofo/table3") for cell in paper.tables["table3"].cells]
    assert {cell.paper: cell.digits for cell in found}[95.0] == 2
    assert {cell.paper: cell.digits for cell in found}[175.0] == 0


@pytest.mark.parametrize(
    ("sentence", "said"),
    [
        ("it has 97.1 %", "is typed"),
        ("it takes 3 MB", "is typed"),
        ("it has {other.accuracy}", "no run 'other'"),
        ("it has {one.speed}", "speed"),
        ("the paper has {paper t: a, c}", "no such cell"),
    ],
)
def test_a_finding_whose_number_has_no_result_is_refused(sentence: str, said: str) -> None:
    table = {"title": "", "cells": [{"row": "a", "column": "b", "paper": 1.0, "run": "one"}]}
    with pytest.raises(ConfigError, match=said):
        Paper.model_validate(
            {
                "cite": "",
                "runs": {"one": QUICK},
                "tables": {"t": table},
                "finding": {"held": [{"text": sentence, "rests_on": ["t: a, b"]}]},
            }
        )


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
    monkeypatch.setattr("colonnade_lab.papers.papers.read_paper", lambda _name, *, quick: paper)
    ((_, asked),) = chosen("vim/table3")
    assert asked.note == "Ten epochs."


@pytest.mark.parametrize("spread", [-0.1, math.inf, math.nan])
def test_a_spread_that_is_none_is_refused(spread: float) -> None:
    with pytest.raises(ValidationError, match="spread"):
        Cell(row="", column="", paper=1, spread=spread, run="x")


@pytest.mark.parametrize(
    ("what", "cells", "why", "tried", "said"),
    [
        ("CIFAR-10", 4, "gpu", "a ResNet-18.", "4 cells, CIFAR-10: needs a GPU (a ResNet-18)"),
        ("(b): needs a GPU", 1, "gpu", "", "1 cell, (b): needs a GPU"),
        ("(c)", 2, "no words", "nothing came of it", "2 cells, (c): no words (nothing came of it)"),
    ],
)
def test_omitted_cells_state_their_reason_once(what: str, cells: int, why: str, tried: str, said: str) -> None:
    assert Excluded(what=what, cells=cells, why=why, tried=tried).words == said


def test_a_claim_compares_at_least_two() -> None:
    with pytest.raises(ConfigError, match="two runs"):
        Claim(text="alone", more={"one": "accuracy"})


def test_a_claim_asks_for_a_lead_or_allows_a_lag() -> None:
    with pytest.raises(ConfigError, match="one of within and by"):
        Claim(text="both", more={"one": "accuracy", "two": "accuracy"}, within=1, by=1)


ROWS, WIDTH, BATCH = 60_000, 64, 64
MESSAGES = math.ceil(ROWS / BATCH)
PLAIN = 4 * ROWS * WIDTH  # bytes of a party's embeddings in an epoch, or of the gradients at them
CODED = ROWS * WIDTH + 8 * MESSAGES  # in 8 bits, with both ends of a scale
EPOCH = {  # bytes of both parties, both ways
    "Split learning": 2 * (PLAIN + PLAIN),
    "Compressed-VFL": 2 * (CODED + PLAIN),
    "VAFL": 2 * (PLAIN + PLAIN),
    "VAFL with noise": 2 * (PLAIN + PLAIN),
    "Syn-ZOO-VFL": 2 * (2 * PLAIN + 4 * MESSAGES),
    "ZOO-VFL": 2 * (2 * PLAIN + 4 * MESSAGES),
    "VFL-CZOFO": 2 * (CODED + (100 + 8) * MESSAGES),
}
BESIDE = {"czofo/mnist_row.yaml", "czofo/speeds.yaml"}
SIZES = {"MB": 10**6, "MiB": 2**20}
PAPER = read_paper("czofo")
TABLE3 = [cell for cell in PAPER.tables["table3"].cells if unit(cell.measure) in SIZES]


def off(cell: Cell, size: int) -> float:
    """Distance of the printed cost from the nearest whole number of epochs, in printed units."""
    epoch = EPOCH[cell.row] / size
    return abs(cell.paper - round(cell.paper / epoch) * epoch)


@pytest.mark.parametrize("cell", TABLE3, ids=lambda cell: f"{cell.row}, {cell.column}")
def test_every_cost_of_table_3_is_whole_epochs_in_its_unit(cell: Cell) -> None:
    printed = 10 if cell.paper == 1300 else 1  # 21 epochs are 1290.4 MB
    assert off(cell, SIZES[unit(cell.measure)]) < printed


@pytest.mark.parametrize(("row", "other"), [("Split learning", "MB"), ("Compressed-VFL", "MB"), ("VAFL", "MiB")])
def test_the_other_unit_does_not_fit(row: str, other: str) -> None:
    assert max(off(cell, SIZES[other]) for cell in TABLE3 if cell.row == row) > 10


def test_the_theorems_quantities_are_measures() -> None:
    bare = {"metrics": {}, "rounds": 1, "parties": {}}
    theorem = {"zeta": 5.71468, "variance": 0.470209, "epsilon": 0.001635537, "turns": 9, "caveat": "not a guarantee"}
    found = run_record({**bare, "theorem": theorem}, Course())
    assert [value(found, f"theorem@{name}") for name in ("zeta", "variance", "epsilon")] == [5.715, 0.4702, 0.001636]
    assert math.isnan(value(run_record({**bare, "theorem": None}, Course()), "theorem@zeta"))
    old = RunRecord.model_validate(
        {"metrics": {}, "points": (), "rounds": 1, "parties": 1, "bytes_up": 0, "bytes_down": 0, "wall": 0}
    )
    assert math.isnan(value(old, "theorem@zeta"))


def test_noise_on_answers_has_its_accounted_epsilon_in_the_record() -> None:
    summary = {"metrics": {}, "rounds": 1, "parties": {}, "answer_privacy": {"accounted": 100.0}}
    assert value(run_record(summary, Course()), "epsilon") == 100


@pytest.mark.parametrize("file", sorted({run.file for run in PAPER.runs.values()} | BESIDE))
def test_every_configuration_keeps_validation_rows(file: str) -> None:
    """Runs of the lists may train on all rows, with what was chosen by these."""
    rows = load(EXPERIMENTS / file).federation.rows
    assert rows is not None and rows.validation
