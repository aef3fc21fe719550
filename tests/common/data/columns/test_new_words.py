"""Words that only validation and test rows have: a run says so at the party that has the column, once."""

from pathlib import Path
from typing import Any

import pandas as pd
import torch

import colonnade
from colonnade.common.data.columns.doubts import new_words
from colonnade.common.data.columns.features import Features, TypedColumn

NAN = float("nan")


def table(*towns: float) -> Features:
    values = torch.tensor([range(len(towns)), towns], dtype=torch.float64).T.contiguous()
    return Features(
        values, ("age", "town"), 0, None, (TypedColumn("age"), TypedColumn("town", ("Bonn", "Kiel", "Ulm")))
    )


def said(*towns: float, train: int = 3) -> list[str]:
    return [str(doubt) for doubt in new_words(table(*towns), torch.arange(train))]


def test_rows_with_new_words_are_counted_and_no_word_is_quoted() -> None:
    (one,) = said(0, 1, 0, 2, 1, 2, NAN)
    assert one.startswith("'town' has words in 2 validation or test rows that no training row has")
    assert "Ulm" not in one
    assert "in 1 validation or test row that" in said(0, 1, 0, 2)[0]


def test_words_of_training_and_missing_ones_are_not_new() -> None:
    assert not said(0, 1, 2, 2, 0, NAN)
    assert not said(0, 1, NAN, NAN, 0)


def test_a_run_says_so_once_at_the_party(tmp_path: Path) -> None:
    rows = 60
    towns = pd.DataFrame({"key": range(rows), "town": [f"town{row}" if row % 2 else "Bonn" for row in range(rows)]})
    sizes = pd.DataFrame({"key": range(rows), "size": [float(row % 7) for row in range(rows)]})
    labels = pd.DataFrame({"key": range(rows), "bad": [row % 2 for row in range(rows)]})
    tree = {
        "federation": {"id": "towns", "protocol": "split", "rounds": 2, "batch": 16, "align": "psi", "classes": 2},
        "server": {"labels": {"key": "key", "label": "bad"}},
        "every_party": {"data": {"key": "key", "missing": "mean", "unseen": "zero"}},
    }
    heard: list[dict[str, Any]] = []
    tables = {"server": labels, "one": towns, "two": sizes}
    colonnade.simulate(tree, tables, tmp_path / "run", on_event=heard.append)
    warnings = [event for event in heard if event["kind"] == "warning" and "no training row has" in event["reason"]]
    assert [event["party"] for event in warnings] == ["one"]
    assert warnings[0]["reason"].startswith("'town' has words in ") and "town1" not in warnings[0]["reason"]
