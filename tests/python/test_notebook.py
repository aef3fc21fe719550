"""Notebooks of examples/notebook, run from top to bottom: their numbers say what their text says."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pandas as pd
import pytest

from colonnade.common.crypto import raising
from colonnade.common.crypto.group import Secret
from colonnade_lab.attacks import network
from tests.support.alignment import hash_cheaply, raise_cheaply
from tests.support.browser import CHROMIUM, Browser

BOOKS = Path(__file__).parents[2] / "examples" / "notebook"


@pytest.mark.parametrize("book", sorted(path.name for path in BOOKS.glob("*.ipynb")))
def test_it_is_kept_without_outputs(book: str) -> None:
    cells = json.loads((BOOKS / book).read_text(encoding="utf-8"))["cells"]
    assert len(cells) > 10 and not any(cell.get("outputs") or cell.get("execution_count") for cell in cells)


def executed(book: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Its names after all cells, in this process, within a running event loop, as cells are.

    Keys are not raised to secrets: that takes long.
    """
    monkeypatch.chdir(folder)
    monkeypatch.setattr(raising, "hash_to_curve", hash_cheaply)
    monkeypatch.setattr(Secret, "raise_all", raise_cheaply)
    monkeypatch.setattr(Secret, "inverse", lambda own: own)
    names: dict[str, Any] = {"__name__": "__main__"}

    async def cells() -> None:
        for cell in json.loads((BOOKS / book).read_text(encoding="utf-8"))["cells"]:
            if cell["cell_type"] == "code":
                exec(compile("".join(cell["source"]), book, "exec"), names)

    with patch.dict(os.environ):
        asyncio.run(cells())
    return names


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_that_of_data_teams_keeps_who_is_worth_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = executed("loans.ipynb", tmp_path, monkeypatch)
    worth, run, smaller = names["worth"], names["run"], names["smaller"]
    rows = {row["party"]: row for row in worth.table.to_pylist()}
    told = {name for name, row in rows.items() if row["told"]}
    assert {"bank", "shop"} <= told  # which people are tested is drawn anew: of 40 times the post office is told once
    assert max(abs(rows["post"][end]) for end in ("low", "high")) < rows["bank"]["low"] and rows["post"]["low"] < 0.01
    assert set(smaller.parties) == told and smaller.metrics["test_auc"] > run.metrics["test_auc"] - 0.05
    classes = names["predicted"]["class"]
    assert pd.isna(classes[0]) and set(classes.dropna()) <= {"no", "yes"}
    assert (smaller.folder / "card.yaml").is_file() and names["card"].is_file()
    shown = {"run.html": run, "worth.html": worth}
    for name, one in shown.items():
        (tmp_path / name).write_text(f"<!doctype html><p id=before>before</p>{one._repr_html_()}<p>after</p>")
    if CHROMIUM is None:
        pytest.skip("there is no Chromium")
    with Browser() as browser:
        for name in shown:
            browser.open(tmp_path / name, 900)
            inside = "document.querySelector('iframe').contentDocument"
            assert browser.value("getComputedStyle(document.body).fontFamily") not in (
                browser.value(f"{inside}.defaultView.getComputedStyle({inside}.body).fontFamily")
            )
            assert browser.value(
                f"{inside}.documentElement.scrollHeight <= document.querySelector('iframe').clientHeight"
            )
            assert browser.value(f"{inside}.querySelectorAll('.headline').length") == 1
        assert worth.said in browser.value(f"{inside}.body.textContent")
        assert not browser.console


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_that_of_researchers_attacks_and_protects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The networks of inversions are smaller and train less."""
    monkeypatch.setattr(network, "EPOCHS", 12)
    monkeypatch.setattr(network, "HIDDEN", 64)
    names = executed("credit.ipynb", tmp_path, monkeypatch)
    result, common = names["result"].to_dict(), len(names["common"])
    joint, alone = names["run"].metrics, names["only_bank"].metrics
    runs = list(result["test AUC"])
    assert runs == ["no protection", "labels, epsilon 2", "labels, epsilon 1"]
    assert 2000 < common < 2700 and joint["test_auc"] > alone["test_auc"] + 0.01
    found, chance = (result[name] for name in ("labels found", "labels found by chance"))
    assert found[runs[0]] > 0.95 and chance[runs[0]] < 0.75
    assert found[runs[2]] < chance[runs[2]] + 0.05  # as many as without any message
    assert [result["epsilon of a label"][name] for name in runs] == [float("inf"), 2, 1]
    auc = [result["test AUC"][name] for name in runs]
    assert auc[0] > auc[2] > 0.7
    assert all(0 < error < 0.5 for error in result["inversion error"].values())  # columns are not protected
    assert (tmp_path / "runs").is_dir()
