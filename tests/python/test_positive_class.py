"""The positive class of two: named wherever metrics of it stand, chosen by `server.labels.positive`, and recorded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import colonnade
from colonnade.common.data.labels import LabelColumn, with_positive
from colonnade.common.errors import ColonnadeError, ConfigError, DataError
from colonnade.common.text import plain
from tests.cli.read.reports import Page
from tests.python.test_headlines import configured, printed, rare, tables
from tests.support.household import colonnade as command


def test_the_named_class_comes_second() -> None:
    labels = LabelColumn(torch.tensor([0, 1, 1]), ("no", "yes"))
    assert with_positive(labels, "yes", "key") is labels
    other = with_positive(labels, "no", "key")
    assert other.classes == ("yes", "no") and other.values.tolist() == [1, 0, 0]


@pytest.mark.parametrize(("classes", "said"), [(("no", "yes"), "'no' and 'yes'"), (("a", "b", "c"), "3 classes")])
def test_other_names_and_more_classes_are_refused(classes: tuple[str, ...], said: str) -> None:
    with pytest.raises(DataError, match=f"^key = 'maybe': .*{said}") as refused:
        with_positive(LabelColumn(torch.tensor([0, 1]), classes), "maybe", "key")
    assert refused.value.hint


def named() -> dict[str, Any]:
    """Tables in which one row in ten has paid late: `late` comes before `paid` in the alphabet."""
    y, x = rare()
    return tables(np.where(y == 1, "late", "paid"), x)


def run(folder: Path, positive: str | None) -> colonnade.Run:
    config = configured(classes=2)
    if positive is not None:
        config["server"]["labels"]["positive"] = positive
        config["server"] |= {"decide": {"by": "cost", "false_positive": 1, "false_negative": 20}, "calibrate": "platt"}
    return colonnade.simulate(config, named(), out=folder)


def test_a_run_is_judged_by_the_chosen_class_and_says_which(tmp_path: Path) -> None:
    by_alphabet, chosen = run(tmp_path / "paid", None), run(tmp_path / "late", "late")
    assert by_alphabet.summary["classes"]["positive"] == "paid"
    assert chosen.summary["classes"]["positive"] == "late"
    # Nine rows in ten are of the other class: a tenth of all rows has at most a ninth of them.
    assert by_alphabet.metrics["test_gain"] < 0.13 and chosen.metrics["test_gain"] > 0.4
    for found, name in ((by_alphabet, "paid"), (chosen, "late")):
        assert f"test AUC of {name} " in printed(found)
        assert f"| positive class | {name} |" in found.card().read_text()
        assert Page(found.report().read_text()).cells("positive class") == [["positive class", name]]
        said = found.predict([f"case{number}" for number in range(400)])
        assert tuple(said.column_names[2:]) == (("p_late", "p_paid") if name == "paid" else ("p_paid", "p_late"))
        decision = found.summary["decision"]
        assert (decision is None) == (name == "paid")
        at, other = (0.5, "late") if decision is None else (decision["threshold"], "paid")
        taken = said[f"p_{name}"].to_numpy() >= at
        assert said["class"].to_pylist() == [name if one else other for one in taken]
    assert at < 0.3 and f"'late' from a probability of {plain(at)} on: the least cost" in printed(chosen)


def test_a_run_is_not_resumed_with_the_other_class(tmp_path: Path) -> None:
    run(tmp_path / "run", "late")
    with pytest.raises(ColonnadeError, match=r"server\.labels has changed") as refused:
        colonnade.load(tmp_path / "run").resume(sets=("server.labels.positive=paid", "federation.epochs=8"))
    assert "server.labels.positive" in refused.value.hint


def test_numbers_have_no_positive_class(tmp_path: Path) -> None:
    config = configured(task="regression", targets=1)
    config["server"]["labels"]["positive"] = 1
    y, x = rare()
    with pytest.raises(ConfigError, match=r"server\.labels\.positive: numbers have no classes"):
        colonnade.simulate(config, tables(y.astype(float), x), out=tmp_path / "run")


def test_check_names_it_and_explains_a_truth_value(tmp_path: Path) -> None:
    for name, table in named().items():
        table.to_csv(tmp_path / f"{name}.csv", index=False)
    text = """
federation: {id: cases, protocol: split, classes: 2, batch: 64, epochs: 6, parties: [one, two]}
server: {labels: {source: csv, path: server.csv, key: case, label: target, positive: POSITIVE}}
parties:
  one: {data: {source: csv, path: one.csv, key: case}}
  two: {data: {source: csv, path: two.csv, key: case}}
"""
    file = tmp_path / "federation.yaml"
    file.write_text(text.replace("POSITIVE", "late"))
    code, output = command("check", file)
    assert code == 0 and "of 2 classes (positive: late)" in output
    file.write_text(text.replace("POSITIVE", "yes"))
    code, output = command("check", file)
    assert code != 0 and "put it in quotes" in output
