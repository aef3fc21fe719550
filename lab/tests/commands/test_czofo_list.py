"""The list of VFL-CZOFO's paper: units by arithmetic from the shapes, the theorem's quantities, validation rows."""

from __future__ import annotations

import math

import pytest

from colonnade.common.parsing.file import load
from colonnade.launcher.demo import EXPERIMENTS
from colonnade_lab.papers.measures import RunRecord, unit, value
from colonnade_lab.papers.papers import Cell, read_paper
from colonnade_lab.papers.running import Course, run_record

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
