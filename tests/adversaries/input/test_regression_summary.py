"""A regression that stops early: every page gives the best round's results in plain numbers.

Bounds: no cell.
"""

from __future__ import annotations

import io
import json
import random
import re
from pathlib import Path
from typing import Any

import pytest

from colonnade.common.parsing.file import parse
from colonnade.reports.card.card import markdown
from colonnade.reports.console.progress import score_words
from colonnade.reports.console.screen import Screen
from colonnade.reports.console.summary import show_summary
from colonnade.reports.records.run import read_run
from colonnade.reports.run_page.about import headline
from colonnade.reports.run_page.comparison import comparison_page
from colonnade.simulation.folder import simulate_in
from tests.cli.read.reports import leave

PLAIN = re.compile(r"\d[\d,]*\.?\d*e[+-]\d")  # a non-finite number


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The summary of a run on house prices of some hundred thousand, which learned too fast and then overfitted."""
    folder = tmp_path_factory.mktemp("houses")
    draw = random.Random(3)
    lines = ["a,b,c,d,price"]
    for _ in range(60):
        x = [draw.gauss(0, 1) for _ in range(4)]
        lines.append(",".join(map(str, [*x, 500_000 + 120_000 * (x[0] + x[3]) + 200_000 * draw.gauss(0, 1)])))
    (folder / "houses.csv").write_text("\n".join(lines) + "\n")
    source = {"source": "csv", "path": "houses.csv"}
    tree = {
        "federation": {
            "id": "houses", "protocol": "split", "parties": 2, "task": "regression", "rounds": 200, "batch": 10,
            "rows": {"validation": 15, "test": 15}, "evaluate": {"every": 2}, "stop": {"patience": 5},
        },
        "server": {"labels": {**source, "label": "price"}, "optimiser": {"name": "adam", "lr": 0.05}},
        "every_party": {
            "data": {**source, "columns": ["a", "b", "c", "d"], "split": "columns"},
            "optimiser": {"name": "adam", "lr": 0.05},
        },
    }  # fmt: skip
    run = folder / "run"
    run.mkdir()
    simulate_in(parse(tree), folder, run)
    said = json.loads((run / "summary.json").read_text())
    assert said["stopped"] and said["best"]["round"] < said["rounds"]  # else nothing below could fail
    assert said["best"]["test_rmse"] != said["metrics"]["test_rmse"] > 10_000
    more = {"bytes": {way: {"payload": 1, "wire": 1} for way in ("up", "down")}, "error": None,
            "seconds_to_first_round": 0.1, "dataset": "houses", "seconds": 1.0}  # fmt: skip
    return {**said, **more}


@pytest.fixture
def folder(found: dict[str, Any], tmp_path: Path) -> Path:
    return leave(tmp_path / "run", found)


def rmse(value: float) -> str:
    return f"{float(f'{value:.4g}'):,.0f}"


def table_of(folder: Path) -> str:
    """The final table as it is printed."""
    printed = io.StringIO()
    show_summary(Screen(width=160, file=printed), folder)
    return printed.getvalue()


def test_a_report_and_a_card_begin_with_the_best_round(found: dict[str, Any], folder: Path) -> None:
    best, run = found["best"], read_run(folder)
    mean = rmse(found["metrics"]["test_baseline_rmse"])
    expected = f"RMSE {rmse(best['test_rmse'])} on 15 test rows that nobody trained on; always the mean has {mean}."
    kept = f"It is the model of round {best['round']}, the best of {found['rounds']}."
    assert f"{expected} {kept}" in headline(run) and f"{expected} {kept}" in markdown(run)


def test_the_final_table_puts_the_best_round_first(found: dict[str, Any], folder: Path) -> None:
    said, best, mean = table_of(folder), found["best"], rmse(found["metrics"]["test_baseline_rmse"])
    line = f"test RMSE {rmse(best['test_rmse'])} (always the mean: {mean})"
    assert line in said and said.index(line) < said.index(f"of round {best['round']}") < said.index("last round")
    assert f"test RMSE {rmse(found['metrics']['test_rmse'])}" in said.partition("last round")[2]


def test_a_comparison_has_the_best_rounds_number(found: dict[str, Any], folder: Path) -> None:
    made = comparison_page([read_run(folder)])
    assert rmse(found["best"]["test_rmse"]) in made and rmse(found["metrics"]["test_rmse"]) not in made


def test_numbers_are_printed_without_powers_of_ten(found: dict[str, Any], folder: Path) -> None:
    run = read_run(folder)
    pages = (markdown(run), headline(run), comparison_page([run]), table_of(folder), found["stopped"])
    assert [PLAIN.findall(page) for page in pages] == [[]] * len(pages)
    assert score_words({"val_rmse": 57_770.4}) == "RMSE 57,770"


def test_a_run_without_early_stopping_reports_its_last_round(found: dict[str, Any], tmp_path: Path) -> None:
    """Shows that the tests above can fail."""
    run = read_run(leave(tmp_path / "run", {**found, "stopped": None, "model": None}))
    metrics = found["metrics"]
    mean = rmse(metrics["test_baseline_rmse"])
    expected = f"RMSE {rmse(metrics['test_rmse'])} on 15 test rows that nobody trained on; always the mean has {mean}."
    assert expected in headline(run) and "It is the model" not in headline(run)
