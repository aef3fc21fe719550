"""What is read of a run whose model is a forest: who matters, the exported parts, and the pages."""

from __future__ import annotations

import csv
import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from colonnade.cli.read.export import export
from colonnade.common.parsing.file import parse
from colonnade.reports.card.card import markdown
from colonnade.reports.explanation.findings import measure
from colonnade.reports.explanation.trained import open_run
from colonnade.reports.explanation.words import numbers
from colonnade.reports.explanation.write import write_explanation
from colonnade.reports.records.run import read_run
from colonnade.reports.run_page.page import html
from colonnade.simulation.federation import Outcome, Simulation
from colonnade.simulation.folder import summarise
from tests.cli.read.test_explain import leave_behind

Rows = list[dict[str, str]]
Case = tuple[Path, Outcome, dict[str, Rows]]

WORDS = ("red", "green", "blue", "rare")


def tables(folder: Path, rows: int = 400) -> dict[str, Rows]:
    """Of two parties, with missing numbers and words, one of which is rare; labels follow both."""
    draws = np.random.default_rng(0)
    colours = [WORDS[min(int(place), 3)] for place in draws.exponential(0.9, rows)]
    x = draws.normal(size=(rows, 2))
    risk = x[:, 0] + np.array([0.0, 1.5, -1.5, 0.5])[[WORDS.index(word) for word in colours]]
    made: dict[str, Rows] = {
        "shop": [{"age": "" if n % 9 == 0 else f"{a:.4f}", "colour": "" if n % 7 == 0 else word}
                 for n, (a, word) in enumerate(zip(x[:, 0], colours, strict=True))],
        "bank": [{"noise": f"{b:.4f}"} for b in x[:, 1]],
        "server": [{"late": "yes" if each > 0.3 else "no"} for each in risk],
    }  # fmt: skip
    for name, lines in made.items():
        with (folder / f"{name}.csv").open("w", newline="") as file:
            out = csv.DictWriter(file, ["id", *lines[0]])
            out.writeheader()
            out.writerows({"id": f"p{n}", **line} for n, line in enumerate(lines))
    return made


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Case:
    folder = tmp_path_factory.mktemp("forest")
    made = tables(folder)
    data: dict[str, Any] = {"source": "csv", "id": "id", "missing": "mean", "unseen": "zero"}
    cfg = parse({
        "federation": {
            "id": "loans", "parties": ["shop", "bank"], "classes": 2, "rounds": 6, "batch": 64, "stop": "none",
            "protocol": {"name": "secureboost", "gradients": "clear", "depth": 3, "rate": 0.3, "least": 8},
            "rows": {"test": 0.3, "validation": 0.1},
        },
        "server": {"labels": {"source": "csv", "path": str(folder / "server.csv"), "id": "id", "label": "late"}},
        "parties": {name: {"data": {**data, "path": str(folder / f"{name}.csv")}} for name in ("shop", "bank")},
    })  # fmt: skip
    outcome = Simulation(cfg, base=folder, save=True).run()
    return leave_behind(folder / "run", cfg, outcome), outcome, made


def test_the_party_with_the_columns_that_matter_is_first(finished: Case) -> None:
    folder, outcome, _ = finished
    trained = open_run(folder)
    found = measure(trained, 1.0)
    said = numbers(trained, found)
    assert found.clean == pytest.approx(outcome.server.metrics["test_accuracy"])
    assert said["ranked"] == ["shop", "bank"] and said["without"] == "shuffled"
    assert found.parties[0].missing < found.clean - 0.1 and abs(found.parties[1].missing - found.clean) < 0.1
    forest = outcome.server.state["forest"]
    gains = [sum(tree.gain[tree.party == party].sum() for tree in forest.trees) for party in (0, 1)]
    assert [party.gain for party in found.parties] == pytest.approx([gain / sum(gains) for gain in gains])
    nodes = [sum(int((tree.party == party).sum()) for tree in forest.trees) for party in (0, 1)]
    assert [party.splits for party in found.parties] == nodes
    assert sum(split["gain"] for split in said["splits"]["shop"]) == pytest.approx(gains[0])


def test_names_and_cuts_are_in_the_partys_own_file_alone(finished: Case, tmp_path: Path) -> None:
    folder, outcome, _ = finished
    explained = write_explanation(folder, tmp_path)
    page = (tmp_path / "explain.html").read_text()
    found = page + (tmp_path / "explain.json").read_text()
    assert not any(word in found for word in ("colour", "age <", "green")) and "noised" not in page
    assert "what a party says of the rows is shuffled" in page and "gain of all splits" in page
    own = json.loads((tmp_path / "parties" / "shop" / "explain.json").read_text())
    assert {one["column"] for one in own["columns"]} == {"age", "colour"}
    assert [split["number"] for split in own["splits"]] == list(range(len(outcome.server.state["forest"].records[0])))
    missing = {one["column"]: one["missing"] for one in own["columns"]}
    clean = json.loads((tmp_path / "explain.json").read_text())["value"]
    assert all(value < clean - 0.03 for value in missing.values())
    said: Any = summarise(outcome)
    revealed = said["forest"]["parties"]["shop"]["columns"]
    assert sorted(one["cuts_revealed"] for one in own["columns"]) == sorted(each["revealed"] for each in revealed)
    assert [path.parent.name for path in explained.owned] == ["shop", "bank"]


def test_card_and_report_say_what_a_forest_is(finished: Case, tmp_path: Path) -> None:
    """No batch, no epoch, no model of a party, no start; gains, cuts and encryption instead."""
    folder, outcome, _ = finished
    found: Any = summarise(outcome)
    assert found["forest"]["trees"] == 6 and found["forest"]["gradients"] == "clear" and not found["forest"]["security"]
    assert found["missing"] == {"shop": 0, "bank": 0}
    (folder / "summary.json").write_text(json.dumps(found))
    card, page = markdown(read_run(folder)), html([read_run(folder)], tmp_path)
    assert "| trees | 6, of depth 3 at most |" in card and "IN THE CLEAR to every party" in card
    assert re.search(r"\| shop \| 2 \| csv \| \d+\.\d% \| \d+ \| \d+ of \d+ \| 0 \|", card)
    assert not any(word in card for word in ("batch", "mlp", "first weights", "starts"))
    assert "Column by column" in page and "cuts revealed to the server" in page


def test_the_exported_parts_predict_what_the_run_predicts(finished: Case, tmp_path: Path) -> None:
    """From raw cells and two files of JSON, by the rules on the page, without any code of ours."""
    folder, _, made = finished
    parts: dict[str, Any] = {}
    for name in ("server", "shop", "bank"):
        export(folder, name, None, tmp_path / name)
        assert [path.name for path in (tmp_path / name).iterdir()] == ["forest.json"]
        parts[name] = json.loads((tmp_path / name / "forest.json").read_text())
    assert parts["server"]["schema"] == "colonnade.forest.server" and parts["server"]["version"] == 1
    assert not any(word in json.dumps(parts["server"]) for word in ("age", "colour", "green"))
    trained = open_run(folder)
    rows = torch.arange(len(made["shop"]))
    expected = trained.logits([trained.splits[name].of_rows(rows) for name in trained.names]).softmax(1)[:, 1]
    for row in rows.tolist():
        score = parts["server"]["start"][0]
        for tree in parts["server"]["trees"]:
            node = tree["nodes"][0]
            while "value" not in node:
                split = parts[node["party"]]["splits"][node["split"]]
                side = "left" if _left(split, made[node["party"]][row][split["column"]]) else "right"
                node = tree["nodes"][node[side]]
            score += node["value"]
        assert 1 / (1 + math.exp(-score)) == pytest.approx(expected[row].item(), abs=1e-6)


def _left(split: dict[str, Any], cell: str) -> bool:
    if not cell:
        found: bool = split["missing"]
    elif "at_most" in split:
        found = split["at_most"] == "all" or (split["at_most"] != "none" and float(cell) <= split["at_most"])
    else:
        found = cell in split["left"] or (cell not in split["right"] and split["others"])
    return found
