"""What a run is judged by: with unequal classes not by accuracy, and with a warning where nothing was learned."""

from __future__ import annotations

import csv
import hashlib
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_breast_cancer, make_classification, make_regression
from sklearn.metrics import balanced_accuracy_score

import colonnade
from colonnade.common.errors import ConfigError, DataError
from colonnade.common.parsing.file import parse
from colonnade.common.text import plain
from colonnade.reports.console.screen import Screen
from colonnade.reports.console.summary import show_summary
from colonnade.reports.records.run import read_run
from colonnade.reports.run_page.about import headline

RATES = {"optimiser": {"name": "adam", "lr": 0.003}}


def tables(labels: np.ndarray, columns: np.ndarray) -> dict[str, pd.DataFrame]:
    whole = pd.DataFrame(columns, columns=[f"c{number}" for number in range(columns.shape[1])])
    whole.insert(0, "case", [f"case{number}" for number in range(len(whole))])
    whole["target"], half = labels, 1 + columns.shape[1] // 2
    names = list(whole.columns)
    return {
        "server": whole[["case", "target"]], "one": whole[names[:half]], "two": whole[["case", *names[half:-1]]],
    }  # fmt: skip


def configured(**agreed: Any) -> dict[str, Any]:
    return {
        "federation": {"id": "cases", "protocol": "split", "batch": 64, "epochs": 6, "stop": "none", **agreed},
        "server": {"labels": {"key": "case", "label": "target"}, **RATES},
        "every_party": {"data": {"key": "case"}, **RATES},
    }


def rare(classes: int = 2) -> tuple[np.ndarray, np.ndarray]:
    shares = [0.9] if classes == 2 else [0.8, 0.1]
    x, y = make_classification(900, 12, n_informative=6, n_classes=classes, weights=shares, random_state=1)
    return y, x


def printed(run: colonnade.Run) -> str:
    """The table at the end of a run."""
    text = io.StringIO()
    with (run.folder / "summary.json").open() as file:
        summary = json.load(file)
    sides = {way: {"payload": 1, "wire": 1} for way in ("up", "down")}
    (run.folder / "summary.json").write_text(json.dumps({**summary, "bytes": sides, "seconds_to_first_round": None}))
    show_summary(Screen(width=200, file=text), run.folder)
    return text.getvalue()


@pytest.fixture(scope="module")
def unequal(tmp_path_factory: pytest.TempPathFactory) -> colonnade.Run:
    run = colonnade.simulate(configured(classes=2), tables(*rare()), out=tmp_path_factory.mktemp("unequal") / "run")
    run.explain()
    return run


def test_auc_and_the_baseline_stand_beside_the_accuracy(unequal: colonnade.Run) -> None:
    metrics, classes = unequal.metrics, unequal.summary["classes"]
    assert classes["unequal"] and classes["measure"] == "auc" and classes["commonest"] == 0
    baseline = metrics["test_baseline_accuracy"]
    assert baseline is not None and 0.8 < baseline < 0.97 and unequal.summary["warning"] is None
    table = printed(unequal)
    assert table.index("test AUC") < table.index("accuracy") < table.index("validation AUC")
    assert "(chance: 0.5000)" in table
    assert f"(always the commonest class: {baseline:.2%})" in table and "warning" not in table
    rows = unequal.summary["rows"]["test"]
    said = (
        f"AUC {plain(metrics['test_auc'])} on {rows} test rows that nobody trained on; a model of always '0' has 0.5."
    )
    assert headline(read_run(unequal.folder)).startswith(said)
    assert said in unequal.card().read_text()
    assert "validation AUC" in unequal.card().read_text()


def test_every_evaluation_has_the_auc(unequal: colonnade.Run) -> None:
    events = unequal.events.to_pylist()
    curve = [event["val_auc"] for event in events if event["kind"] == "evaluation" and event["part"] == "validation"]
    assert len(curve) == 6 and curve[-1] == unequal.metrics["val_auc"]


def test_the_page_has_the_gains_and_the_curve_of_the_auc(unequal: colonnade.Run) -> None:
    page = unequal.report().read_text()
    for words in (
        "Cumulative gains",
        "best possible",
        "ROC",
        "Precision and recall",
        "KS statistic",
        "lift of the top decile",
        "AUC against rounds",
    ):
        assert words in page, words


def test_explain_measures_by_the_auc_and_says_so(unequal: colonnade.Run) -> None:
    found = json.loads((unequal.folder / "explain.json").read_text())
    assert found["measure"] == "auc" and found["value"] == pytest.approx(unequal.metrics["test_auc"], abs=1e-6)
    page = (unequal.folder / "explain.html").read_text()
    assert "Measured by AUC, since classes are unequal" in page and "AUC without it" in page
    assert "AUC lost without the party" in page and "points of" not in page.lower()
    assert "AUC lost without the party" in unequal.report().read_text()


def test_compared_runs_have_their_baselines(unequal: colonnade.Run, tmp_path: Path) -> None:
    x, y = load_breast_cancer(return_X_y=True)
    equal = colonnade.simulate(configured(classes=2), tables(y, x), out=tmp_path / "equal")
    assert equal.summary["classes"]["measure"] == "accuracy" and equal.summary["warning"] is None
    page = unequal.compare(equal, out=tmp_path / "both.html").read_text()
    assert "always the commonest class" in page and "test AUC" in page and "test RMSE" not in page
    alone = printed(equal)
    assert alone.index("test accuracy") < alone.index("always the commonest class") < alone.index("test AUC")


def test_of_several_unequal_classes_the_balanced_accuracy_judges(tmp_path: Path) -> None:
    run = colonnade.simulate(configured(classes=3), tables(*rare(3)), out=tmp_path / "run")
    assert run.summary["classes"]["measure"] == "balanced_accuracy"
    confusion = np.array(run.summary["details"]["test"]["confusion"])
    truth = np.repeat(range(3), confusion.sum(axis=1))
    said = np.concatenate([np.repeat(range(3), line) for line in confusion])
    assert run.metrics["test_balanced_accuracy"] == pytest.approx(balanced_accuracy_score(truth, said))
    assert "test balanced accuracy" in printed(run) and "Cumulative gains" not in run.report().read_text()


@pytest.mark.parametrize("classes", [2, 3])
def test_shuffled_labels_are_warned_of_everywhere(tmp_path: Path, classes: int) -> None:
    labels, columns = rare(classes)
    labels = np.random.default_rng(0).permutation(labels)
    run = colonnade.simulate(configured(classes=classes), tables(labels, columns), out=tmp_path / "run")
    warning = run.summary["warning"]
    assert warning.startswith("on the test rows the model is no better than always saying the commonest class")
    assert warning in " ".join(printed(run).split())
    assert f"Warning: {warning}." in run.report().read_text() and warning in run.card().read_text()
    other = colonnade.simulate(configured(classes=classes, epochs=1), tables(*rare(classes)), out=tmp_path / "other")
    assert f"Warning: {warning}." in run.compare(other, out=tmp_path / "both.html").read_text()


@pytest.mark.parametrize("related", [True, False])
def test_a_regression_stands_beside_the_mean(tmp_path: Path, related: bool) -> None:
    x, y = make_regression(500, 10, noise=20, random_state=0)
    if not related:
        y = np.random.default_rng(0).permutation(y)
    run = colonnade.simulate(configured(task="regression", epochs=12), tables(y, x), out=tmp_path / "run")
    assert (run.summary["warning"] is None) is related and run.summary["classes"] is None
    table = printed(run)
    assert f"(always the mean: {run.metrics['test_baseline_rmse']:.4g})" in table and ", R2 " in table
    assert related or "no better than always predicting the mean" in table


def test_a_run_stops_by_its_auc(tmp_path: Path) -> None:
    stop = {"metric": "auc", "patience": 2}
    run = colonnade.simulate(configured(classes=2, epochs=30, stop=stop), tables(*rare()), out=tmp_path / "run")
    best, events = run.summary["best"], run.events.to_pylist()
    curve = [event["val_auc"] for event in events if event["kind"] == "evaluation" and event["part"] == "validation"]
    assert "validation AUC was no better in 2 evaluations" in run.summary["stopped"]
    assert best["val_auc"] == max(curve) and curve[-1] <= max(curve) and len(curve) < 30
    assert headline(read_run(run.folder)).startswith(f"AUC {plain(best['test_auc'])} on ")
    assert f"It is the model of round {best['round']}, the best of {run.summary['rounds']}." in run.report().read_text()
    assert f"validation AUC {best['val_auc']:.4g}" in printed(run)


def test_auc_is_computed_for_a_stop_where_classes_are_equal(tmp_path: Path) -> None:
    x, y = load_breast_cancer(return_X_y=True)
    stop = {"metric": "log_loss", "drop": 0.5}
    run = colonnade.simulate(configured(classes=2, stop=stop), tables(y, x), out=tmp_path / "run")
    events = [event for event in run.events.to_pylist() if event["kind"] == "evaluation"]
    assert all(event["val_log_loss"] for event in events if event["part"] == "validation")


def test_validation_rows_of_one_class_cannot_stop_by_an_auc(tmp_path: Path) -> None:
    labels = (np.arange(300) < 2).astype(int)
    columns = np.random.default_rng(0).normal(size=(300, 4))
    made = configured(classes=2, rows={"validation": 3}, stop={"metric": "auc", "patience": 2})
    with pytest.raises(DataError, match=r"federation\.stop\.metric = auc: all 3 validation rows have one class"):
        colonnade.simulate(made, tables(labels, columns), out=tmp_path / "run")


def test_a_metric_of_the_other_task_is_refused() -> None:
    made = configured(task="regression", parties=2, stop={"metric": "auc", "patience": 2})
    made["server"]["labels"] = {"source": "sklearn", "name": "diabetes"}
    made["every_party"]["data"] = {"source": "sklearn", "name": "diabetes", "split": "columns"}
    with pytest.raises(ConfigError, match=r"stop\.metric = auc with federation\.task = regression"):
        parse(made)


def test_labels_with_noise_give_no_exact_sizes(tmp_path: Path) -> None:
    made = configured(classes=2)
    made["server"]["privacy"] = {"labels": {"epsilon": 4, "seeded": True}}
    run = colonnade.simulate(made, tables(*rare()), out=tmp_path / "run")
    counts = run.summary["classes"]
    assert counts["commonest"] == 0 and counts["unequal"]
    exact = colonnade.simulate(configured(classes=2, epochs=1), tables(*rare()), out=tmp_path / "exact")
    assert counts["share"] != exact.summary["classes"]["share"] == pytest.approx(counts["share"], abs=0.1)


def test_a_model_of_all_tables_is_named_where_it_was_tested_on_the_same_rows(tmp_path: Path) -> None:
    given = tables(*rare())
    pooled, short = configured(classes=2, protocol="centralized", epochs=2), configured(classes=2, epochs=2)
    reference = colonnade.simulate(pooled, given, out=tmp_path / "pooled")
    run = colonnade.simulate(short, given, out=tmp_path / "run")
    saved, of_pooled = json.loads((run.folder / "summary.json").read_text()), reference.metrics["test_auc"]

    def said_of(auc: float) -> str:
        saved["metrics"]["test_auc"] = auc
        (run.folder / "summary.json").write_text(json.dumps(saved))
        return headline(read_run(run.folder))

    assert f"; not told apart from all tables pooled ({plain(of_pooled)})." in said_of(of_pooled + 0.02)
    # by far more than such rows can tell apart
    assert f"; {plain(100 * (of_pooled - 0.1), 2)} points below all tables pooled." in said_of(0.1)
    assert f"all tables pooled, run pooled: {plain(of_pooled)}" in run.report().read_text()
    assert "pooled" not in headline(read_run(reference.folder))

    def page(name: str, config: dict[str, Any], tables: dict[str, pd.DataFrame]) -> str:
        return headline(read_run(colonnade.simulate(config, tables, out=tmp_path / name).folder))

    assert "pooled" not in page("seed", configured(classes=2, epochs=2, seed=1), given)
    rows = given | {"one": given["one"].iloc[:-9]}
    aligned = {"align": "psi", "keys": {"seeded": True}}
    assert "pooled" not in page("fewer rows", configured(classes=2, epochs=2, **aligned), rows)
    assert read_run(tmp_path / "fewer rows").summary["rows_hash"]["test"] == hashed(tmp_path / "fewer rows")
    assert "pooled" not in page("columns", short, given | {"two": given["two"].drop(columns="c11")})
    labels = given["server"].assign(target=given["server"]["target"].to_numpy()[::-1])
    assert "pooled" not in page("labels", short, given | {"server": labels})


def hashed(run: Path) -> str:
    """What a summary says of the test rows, by the keys in scores.csv: of a list in JSON, the number of rows first."""
    with (run / "scores.csv").open(encoding="utf-8") as file:
        keys = sorted(line["id"] for line in csv.DictReader(file) if line["part"] == "test")
    rows = sum(json.loads((run / "summary.json").read_text())["rows"].values())
    return hashlib.sha256(json.dumps([rows, *keys]).encode()).hexdigest()[:32]


def test_runs_on_other_rows_are_not_compared(tmp_path: Path) -> None:
    given = tables(*rare())
    one, two = (
        colonnade.simulate(configured(classes=2, epochs=1, seed=seed), given, out=tmp_path / f"{seed}")
        for seed in (0, 1)
    )
    assert one.summary["rows"] == two.summary["rows"] and one.summary["rows_hash"] != two.summary["rows_hash"]
    assert one.summary["rows_hash"]["test"] == hashed(one.folder)
    words = "These runs are tested on different rows"
    assert words in one.compare(two, out=tmp_path / "both.html").read_text()


def test_a_failed_run_says_what_to_do(tmp_path: Path) -> None:
    given, made = tables(*rare()), configured(classes=2, epochs=2)
    made["every_party"]["optimiser"] = {"name": "sgd", "lr": 1e30}
    with pytest.raises(colonnade.ColonnadeError) as failed:
        colonnade.simulate(made, given, out=tmp_path / "run")
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["error"] == str(failed.value) and "lower" in summary["hint"].lower()
