"""What is read of a run whose model is additive: who matters, the shapes by name, the exported parts, reasons."""

from __future__ import annotations

import json
import math
from bisect import bisect_left
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from colonnade.cli.read.export import export
from colonnade.client.training.shapes import ShapeSum
from colonnade.common.errors import InputError
from colonnade.common.parsing.file import parse
from colonnade.reports.explanation.findings import measure
from colonnade.reports.explanation.trained import Trained, open_run
from colonnade.reports.explanation.words import numbers
from colonnade.reports.explanation.write import write_explanation
from colonnade.simulation.federation import Outcome, Simulation
from tests.cli.read.reports import Page
from tests.cli.read.test_explain import leave_behind
from tests.cli.read.test_forests import Rows, tables

Case = tuple[Path, Outcome, dict[str, Rows], Trained]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Case:
    folder = tmp_path_factory.mktemp("shapes")
    made = tables(folder)
    data: dict[str, Any] = {"source": "csv", "id": "id", "missing": "mean", "unseen": "zero"}
    protocol = {"name": "additive", "gradients": "clear", "aggregate": "clear", "rate": 0.3, "least": 8, "pairs": 1}
    cfg = parse({
        "federation": {
            "id": "loans", "parties": ["shop", "bank"], "classes": 2, "rounds": 8, "batch": 64, "stop": "none",
            "protocol": protocol, "rows": {"test": 0.3, "validation": 0.1},
        },
        "server": {"labels": {"source": "csv", "path": str(folder / "server.csv"), "id": "id", "label": "late"}},
        "parties": {name: {"data": {**data, "path": str(folder / f"{name}.csv")}}
                    for name in ("shop", "bank")},
    })  # fmt: skip
    outcome = Simulation(cfg, base=folder, save=True).run()
    run = leave_behind(folder / "run", cfg, outcome)
    return run, outcome, made, open_run(run)


def test_the_party_with_the_columns_that_matter_is_first(finished: Case) -> None:
    _, outcome, _, trained = finished
    found = measure(trained, 1.0)
    said = numbers(trained, found)
    assert found.clean == pytest.approx(outcome.server.metrics["test_accuracy"])
    assert said["ranked"] == ["shop", "bank"] and said["without"] == "shuffled"
    assert said["parties"]["shop"]["size"] > 4 * said["parties"]["bank"]["size"]


def test_names_and_points_are_in_the_partys_own_file_alone(finished: Case, tmp_path: Path) -> None:
    folder, *_ = finished
    explained = write_explanation(folder, tmp_path)
    page = (tmp_path / "explain.html").read_text()
    assert not any(word in page + (tmp_path / "explain.json").read_text() for word in ("colour", "green"))
    assert "Mean distance of its scores" in page and "what a party says of the rows is shuffled" in page
    own = json.loads((tmp_path / "parties" / "shop" / "explain.json").read_text())
    assert {one["column"] for one in own["columns"]} == {"age", "colour"}
    assert [one["columns"] for one in own["pairs"]] == [["age", "colour"]]
    assert all(one["importance"] > 0.1 for one in own["columns"])
    assert [path.parent.name for path in explained.owned] == ["shop", "shop", "bank", "bank"]
    made = Page((tmp_path / "parties" / "shop" / "explain.html").read_text())
    ranked = sorted(own["columns"] + own["pairs"], key=lambda one: -one["importance"])
    names = [one.get("column") or " x ".join(one["columns"]) for one in ranked]
    assert f"{names[0]} decides most" in made.words
    chart = [row for row in made.rows if row and row[0] in names][: len(names)]
    assert [(row[0], float(row[2])) for row in chart] == [
        (name, pytest.approx(one["importance"], abs=5e-4)) for name, one in zip(names, ranked, strict=True)
    ]
    age, colour = (next(one for one in own["columns"] if one["column"] == name) for name in ("age", "colour"))
    (drawn,) = (
        str(attrs["data-y"]).split(";")
        for tag, attrs in made.tags
        if tag == "polyline" and attrs["data-x"] != "missing"
    )
    steps = [point[0] - age["mean"][0] for point in age["points"][: len(age["cuts"]) + 1] for _ in (0, 1)]
    assert [float(y) for y in drawn] == pytest.approx(steps, rel=0.06, abs=0.01)
    green = colour["points"][colour["words"].index("green")][0] - colour["mean"][0]
    assert float(made.cells("green")[0][2]) == pytest.approx(green, abs=6e-3)


def test_the_exported_parts_predict_what_the_run_predicts(finished: Case, tmp_path: Path) -> None:
    """From raw cells and files of JSON, by the rules on the page, without any code of ours."""
    folder, _, made, trained = finished
    parts: dict[str, Any] = {}
    for name in ("server", "shop", "bank"):
        export(folder, name, None, tmp_path / name)
        assert [path.name for path in (tmp_path / name).iterdir()] == ["shapes.json"]
        with pytest.raises(InputError, match="is no network"):
            export(folder, name, None, tmp_path / "onnx", onnx=True)
        parts[name] = json.loads((tmp_path / name / "shapes.json").read_text())
    rows = torch.arange(len(made["shop"]))
    sent = [trained.locals[name].of_rows(trained.clients[name].features, rows) for name in trained.names]
    expected = trained.logits(sent).softmax(1)[:, 1]
    for row in rows.tolist():
        score = parts["server"]["start"][0]
        for name in ("shop", "bank"):
            bins = {one["column"]: bin_of(one, made[name][row][one["column"]]) for one in parts[name]["columns"]}
            score += sum(one["points"][bins[one["column"]]][0] for one in parts[name]["columns"])
            for pair in parts[name]["pairs"]:
                first, second = (
                    groups[bins[column]] for groups, column in zip(pair["groups"], pair["columns"], strict=True)
                )
                score += pair["points"][pair["cells"][8 * first + second]][0]
        assert 1 / (1 + math.exp(-score)) == pytest.approx(float(expected[row]), abs=1e-6)


def bin_of(column: dict[str, Any], cell: str) -> int:
    """The bin of a raw cell."""
    if not cell:
        return int(column["missing"])
    if "cuts" in column:
        return bisect_left(column["cuts"], float(cell))
    return int(column["words"].index(cell) if cell in column["words"] else column["others"])


def test_reasons_are_the_columns_that_lower_a_score_most(finished: Case) -> None:
    _, _, _, trained = finished
    part = trained.locals["shop"]
    assert isinstance(part, ShapeSum)
    rows = torch.arange(60)
    parts, scores = part.parts(rows)[:, :, 0], part.bins.scores(part.values, rows)[:, 0]
    assert np.ptp(scores - parts.sum(1)) < 1e-9
    for line, reasons in zip(parts, part.reasons(rows, most=2), strict=True):
        assert [points for _, points in reasons] == sorted(each for each in line if each < 0)[:2]
    below = part.reasons(rows, reference="best")
    assert all(points <= 0 for reasons in below for _, points in reasons)
    assert {name for reasons in below for name, _ in reasons} <= {"age", "colour", "age x colour"}
