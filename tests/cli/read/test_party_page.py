"""The page of a party's own folder: its columns, what has moved since its run before, and what it sent."""

from __future__ import annotations

import errno
import itertools
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import colonnade
from colonnade.common.data.columns.distribution import ColumnBins, fit
from colonnade.common.data.columns.encode import Code
from colonnade.common.data.columns.features import Features, TypedColumn
from colonnade.reports.run_page.party_page import moved
from tests.cli.read.reports import Page, command

CONFIG = {
    "federation": {"id": "credit", "protocol": "split", "classes": 2, "epochs": 1, "batch": 64},
    "server": {"labels": {"key": "id", "label": "late"}},
    "every_party": {"data": {"key": "id", "missing": "median"}},
}  # fmt: skip


def tables(*, later: bool) -> dict[str, pd.DataFrame]:
    draws = np.random.default_rng(int(later))
    count = 400
    ids, values = np.arange(count), draws.normal(size=(count, 3))
    debt = np.where(draws.random(count) < (0.3 if later else 0.02), np.nan, values[:, 1])
    towns = draws.choice(["Bonn", "Kiel"], count, p=[0.8, 0.2] if later else [0.3, 0.7])
    income = values[:, 0] + 2 * later
    return {
        "server": pd.DataFrame({"id": ids, "late": (values.sum(axis=1) > 0).astype(int)}),
        "bank": pd.DataFrame({"id": ids, "income": income, "debt": debt, "town": towns}),
        "clinic": pd.DataFrame({"id": ids, "weight": values[:, 2]}),
    }


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs beside each other, and one of another federation."""
    folder = tmp_path_factory.mktemp("runs")
    colonnade.simulate(CONFIG, tables(later=False), folder / "october")
    other: Any = {**CONFIG, "federation": {**CONFIG["federation"], "id": "else"}}
    colonnade.simulate(other, tables(later=True), folder / "elsewhere")
    colonnade.simulate(CONFIG, tables(later=True), folder / "november")
    return folder


def test_a_party_sees_its_columns_and_what_left(runs: Path, monkeypatch, capfd) -> None:
    folder = runs / "november" / "parties" / "bank"
    code, _ = command(monkeypatch, capfd, "report", folder)
    made = Page((folder / "report.html").read_text())
    assert code == 0
    assert made.words.startswith("bank: its own report bank: its own report bank sent ")
    assert (
        "3 of 3 columns have moved" not in made.words
        and "2 of 3 columns have moved since its run 'october'" in made.words
    )
    by_name = {row[0]: row[1:] for row in made.rows if len(row) == 5}
    assert by_name["town"][0] == "words" and by_name["town"][2].startswith("Bonn 8")
    assert by_name["debt"][0] == "numbers" and "before" in by_name["debt"][3] and "at least" not in by_name["debt"][3]
    assert all("at least" in by_name[name][3] for name in ("town", "income"))
    assert "In the clear: Embedding".lower() in made.words.lower() and "No privacy guarantee was counted" in made.words
    first = runs / "october" / "parties" / "bank"
    assert command(monkeypatch, capfd, "report", first, "--out", runs / "first.html")[0] == 0
    assert "moved" not in Page((runs / "first.html").read_text()).words


def test_the_servers_page_has_none_of_it(runs: Path) -> None:
    page = colonnade.load(runs / "november").report().read_text()
    assert not any(word in page for word in ("income", "debt", "Bonn"))


def test_what_is_refused(runs: Path, monkeypatch, capfd) -> None:
    folder, out = runs / "october" / "parties" / "clinic", runs / "never.html"
    for words in ((folder, folder.parent / "bank"), (runs / "october", folder), (folder, "--follow")):
        code, said = command(monkeypatch, capfd, "report", *words, "--out", out)
        assert code == 2 and "is a party's own folder" in said
    (folder / "encoder.json").write_text((folder / "encoder.json").read_text().replace("weight", "height"))
    code, said = command(monkeypatch, capfd, "report", folder, "--out", out)
    assert code == 2 and "encoder.json is torn or was altered" in said and not out.exists()


def test_what_lies_beside_is_passed_over_where_it_cannot_be_read(
    runs: Path, tmp_path: Path, monkeypatch, capfd
) -> None:
    shutil.copytree(runs / "november", tmp_path / "november")
    before = shutil.copytree(runs / "october", tmp_path / "october") / "parties" / "bank"
    (before / "encoder.json").write_text("{")
    shutil.copytree(before.parent.parent, tmp_path / "torn")
    (tmp_path / "torn" / "parties" / "bank" / "config.yaml").write_text("parties: [")
    locked = tmp_path / "locked"
    locked.mkdir()
    stat = os.stat

    def refusing(path: Any, *more: Any, **how: Any) -> os.stat_result:
        if str(path).startswith(str(locked)):  # the folder of another user: chmod stops no root
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return stat(path, *more, **how)

    monkeypatch.setattr(os, "stat", refusing)
    with pytest.raises(PermissionError):
        (locked / "summary.json").is_file()
    for folder in (tmp_path / "november", tmp_path / "november" / "parties" / "bank"):
        code, said = command(monkeypatch, capfd, "report", folder)
        assert code == 0, said
        assert "moved" not in Page((folder / "report.html").read_text()).words


def fitted(values: np.ndarray, words: tuple[str, ...] | None = None) -> ColumnBins:
    features = Features(torch.tensor(values[:, None]), ("c",), 0, None, (TypedColumn("c", words),))
    return fit(features, (Code("c", words, None, own=False),), torch.arange(len(values)))[0]


@pytest.mark.parametrize("seed", range(4))
def test_no_more_is_said_to_have_moved_than_has(seed: int) -> None:
    draws = np.random.default_rng(seed)
    samples = [
        draws.normal(size=700), draws.normal(0.7, 1, 500), draws.exponential(size=900), draws.integers(0, 3, 800),
        (draws.random(600) < 0.04).astype(float), (draws.random(600) < 0.3).astype(float), np.full(300, 2.0),
    ]  # fmt: skip
    known = 0
    for one, other in itertools.permutations(samples, 2):
        found = moved(fitted(one.astype(float)), (), fitted(other.astype(float)), ())
        places = np.unique([*one, *other, np.inf])
        shares = [np.searchsorted(np.sort(each), places) / len(each) for each in (one, other)]
        assert found is None or found <= abs(shares[0] - shares[1]).max() + 1e-9
        known += found is not None
    assert known > len(samples)
    again = draws.normal(size=(2, 700))
    assert moved(fitted(again[0]), (), fitted(again[1]), ()) is None


def test_words_that_one_run_had_not() -> None:
    words = tuple(f"w{number}" for number in range(14))
    draws = np.random.default_rng(0)
    before = fitted(draws.integers(0, 13, 2000).astype(float), words)
    now = fitted(np.where(draws.random(2000) < 0.4, 13, draws.integers(0, 13, 2000)).astype(float), words)
    assert moved(before, words[:13], now, words) == pytest.approx(0.4, abs=0.05)
    assert (moved(before, words, now, words) or 0) < 0.4  # then it may have been one of the rare ones
    assert moved(before, words, before, words) is None and moved(before, words, fitted(np.ones(9)), ()) is None
