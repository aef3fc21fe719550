"""The report's answer to how good the model is: the headline, charts for classes and numbers, and the threshold."""

from __future__ import annotations

import re
from collections.abc import Callable
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from sklearn import metrics as truth

from colonnade.common.data.labels import TargetScale
from colonnade.reports.decision import decision_rows
from colonnade.reports.records.run import read_run
from colonnade.reports.run_page.about import headline
from colonnade.reports.run_page.page import write_page
from colonnade.server.training.metrics import decision, quality
from colonnade.server.training.metrics.residuals import Residuals
from tests.cli.read.reports import Page, evaluated, leave, page, summary

BIN = {"from": 0.9, "to": 1.0, "rows": 9, "confidence": 0.95, "share": 0.875}
METRICS = {"test_accuracy": 0.8, "test_auc": 0.91234, "test_brier": 0.125, "val_auc": 0.5}
UNEQUAL = {"commonest": 0, "share": 0.8, "unequal": True, "measure": "auc", "positive": "yes", "names": ["no", "yes"]}
ROWS = {"train": 1000, "validation": 100, "test": 4522}

Show = Callable[..., str]


@pytest.fixture
def shown(tmp_path: Path) -> Show:
    """The page of a run with this in its summary."""

    def show(**said: Any) -> str:
        folder = leave(tmp_path / f"run{len(list(tmp_path.iterdir()))}", summary(**said))
        return write_page([read_run(folder)]).read_text()

    return show


def figure(made: str, title: str) -> str:
    parts = [part.partition("</figure>")[0] for part in made.split("<figure")[1:]]
    return next(part for part in parts if f"<figcaption>{title}</figcaption>" in part)


def drawn(made: str, title: str) -> dict[str, list[tuple[float, float]]]:
    """Curves of a picture by name, as they are read out under the pointer."""
    lines = re.findall(r'data-x="(.*?)" data-y="(.*?)"><title>(.*?)</title>', figure(made, title))
    return {name: list(zip(numbers(x), numbers(y), strict=True)) for x, y, name in lines}


def numbers(said: str) -> list[float]:
    return [float(each.rstrip("%").replace(",", "")) / (100 if each.endswith("%") else 1) for each in said.split(";")]


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ({"metrics": {"test_accuracy": 0.9, "test_auc": 0.912}, "classes": UNEQUAL, "rows": ROWS},
         "AUC 0.912 on 4,522 test rows that nobody trained on; a model of always 'no' has 0.5."),
        ({"metrics": {"test_accuracy": 0.9, "test_baseline_accuracy": 0.76}, "classes": {**UNEQUAL, "unequal": False}},
         "Accuracy 90% on test rows that nobody trained on; a model of always 'no' has 76%."),
        ({"metrics": {"test_accuracy": 0.5, "test_baseline_accuracy": 0.5}, "warning": "it is no better",
          "classes": {**UNEQUAL, "unequal": False}},
         "No better than always 'no': accuracy 50% on test rows that nobody trained on"),
        ({"metrics": {"test_rmse": 53_512.0, "test_baseline_rmse": 75_000.0}, "rows": ROWS},
         "RMSE 53,510 on 4,522 test rows that nobody trained on; always the mean has 75,000."),
        ({"metrics": {"val_accuracy": 0.75}, "rows": ROWS}, "Accuracy 75% on 100 validation rows."),
        ({"metrics": {"test_balanced_accuracy": 0.75, "test_accuracy": 0.9},
          "classes": {"commonest": 2, "share": 0.9, "unequal": True, "measure": "balanced_accuracy", "positive": None,
                      "names": ["a", "b", "c", "d"]}},
         "Balanced accuracy 75% on test rows that nobody trained on; a model of always 'c' has 25%."),
        ({"metrics": {"test_accuracy": 0.5}, "stopped": "it fell", "model": {"round": 4, "why": "the best"},
          "best": {"round": 4, "val_accuracy": 0.75, "test_accuracy": 0.7, "checkpoint": True}},
         "Accuracy 70% on test rows that nobody trained on. It is the model of round 4, the best of 6."),
        ({"metrics": {"train_loss": 0.25}}, "No evaluation was made: the training loss is 0.25."),
        ({"metrics": {}, "status": "failed", "error": "ada: no disk.", "rounds": 1},
         "The run failed after 1 round: ada: no disk. No evaluation was made."),
        ({"metrics": {"val_accuracy": 0.75}, "status": "interrupted"},
         "The run was interrupted after 6 rounds. Accuracy 75% on validation rows."),
    ],
)  # fmt: skip
def test_a_headline_answers_how_good_it_is_or_why_there_is_no_answer(
    tmp_path: Path, said: dict[str, Any], expected: str
) -> None:
    made = headline(read_run(leave(tmp_path / "run", summary(**said))))
    assert made.startswith(expected), made
    assert "vimadmm on digits among 3 parties, " in made and made.endswith("no privacy mechanism.")


def test_the_first_screen_says_why_it_stopped_and_who_sees_what(shown: Show) -> None:
    made = Page(shown(stopped="validation AUC was no better in 5 evaluations", rows=ROWS, classes=UNEQUAL,
                      metrics=METRICS))  # fmt: skip
    first = made.words.partition("Quality and loss over the run")[0]
    for words in (
        "Stopped early because validation AUC was no better in 5 evaluations", "1,000 rows to train on",
        "4,522 to test", "'yes': 20% of the training rows", "No guarantee", "The server sees every party's embeddings",
        "6.0 kB to the server",
    ):  # fmt: skip
        assert words in first, words
    failed = Page(shown(status="failed", error="party2: out of memory")).words
    assert "party2: out of memory When the cause is mended, `colonnade up --resume " in failed


def test_rows_of_two_classes_are_ranked_as_scikit_learn_ranks_them(shown: Show) -> None:
    draw = np.random.default_rng(1)
    labels = (draw.random(900) < 0.2).astype(np.int64)
    scores = np.clip(0.3 * labels + draw.normal(0.35, 0.15, 900), 0.01, 0.99)
    measured, details = quality.describe(np.stack([1 - scores, scores], axis=1), labels)
    made = shown(metrics={f"test_{key}": value for key, value in measured.items()}, classes=UNEQUAL,
                 details={"test": details})  # fmt: skip
    roc = drawn(made, "ROC")["model"]
    assert np.trapezoid([y for _, y in roc], [x for x, _ in roc]) == pytest.approx(measured["auc"], abs=0.003)
    assert f"an area of {measured['auc']:.3f}" in figure(made, "ROC")
    precision, recall, _ = truth.precision_recall_curve(labels, scores)
    for x, y in drawn(made, "Precision and recall")["model"]:
        assert np.hypot(recall - x, precision - y).min() < 0.01
    shares = drawn(made, "Over the threshold")
    for at, value in shares["precision"]:
        assert value == pytest.approx(truth.precision_score(labels, scores >= at - 1e-4), abs=0.03)
    assert [x for x, _ in shares["recall"]] == sorted(x for x, _ in shares["recall"])
    assert f"KS, {measured['ks']:.4f}" in figure(made, "Cumulative gains") and "0.5 in use" in made
    tenth = next(row for row in Page(made).rows if row[0] == "10%")
    assert float(tenth[2]) == pytest.approx(measured["lift"], abs=0.1)


def test_the_confusion_matrix_and_the_calibration_have_the_classes_names(tmp_path: Path) -> None:
    details = {"test": {"confusion": [[5, 1], [2, 7]], "reliability": [BIN]}}
    folder = leave(tmp_path / "run", summary(metrics=METRICS, details=details))
    (folder / "config.yaml").write_text(yaml.safe_dump({"federation": {"classes": ["no<", "yes"]}}))
    made = write_page([read_run(folder)]).read_text()
    assert Page(made).cells("true no<") == [["true no<", "5", "1"]] and "no&lt;" in made and "<no" not in made
    assert "80% of the rows lie on the diagonal" in figure(made, "Confusion matrix")
    assert Page(made).cells("0.9 to 1") == [["0.9 to 1", "9", "95%", "87.5%"]]
    assert drawn(made, "Calibration")["model"] == [(0.95, 0.875)]


@pytest.mark.parametrize("classes", [10, 30, 31, 200])
def test_all_classes_are_shown_or_the_pairs_that_are_confused_most(shown: Show, classes: int) -> None:
    counts = (3 * np.eye(classes, dtype=int)).tolist()
    counts[7][2], counts[0][1] = 9, 2
    made = shown(metrics=METRICS, details={"test": {"confusion": counts}})
    if classes <= 30:
        picture = figure(made, "Confusion matrix")
        assert picture.count("<rect") == classes**2 and ">9</text>" in picture
    else:
        rows = [row for row in Page(made).rows if "taken for" in row[0]]
        assert [row[0] for row in rows] == ["7 taken for 2", "0 taken for 1"] and rows[0][-1] == "9 of 12"
    assert len(made) < 300_000


def test_numbers_are_shown_with_what_they_are_off(shown: Show) -> None:
    draws = torch.Generator().manual_seed(3)
    true = 100 + 20 * torch.randn(200, 1, dtype=torch.float64, generator=draws)
    scale = TargetScale.fit(true, torch.arange(200))
    residuals = Residuals(scale)
    residuals.add(scale.apply(true) + 0.5 * torch.randn(200, 1, generator=draws), scale.apply(true))
    metrics, details = residuals.closer()
    made = shown(metrics={"test_rmse": residuals.metrics["rmse"], "test_r2": 0.5, "test_baseline_rmse":
                          metrics["baseline_rmse"]}, details={"test": details})  # fmt: skip
    off = np.abs(np.subtract(*residuals.arrays())[:, 0])
    said = re.search(r"off by at most ([\d.]+), nine of ten by at most ([\d.]+)\.", made)
    assert said is not None
    assert [float(each) for each in said.groups()] == pytest.approx(np.quantile(off, (0.5, 0.9)), rel=1e-3)
    curves = drawn(made, "True against predicted")
    assert set(curves) == {"true: median", "nine tenths", "a tenth", "exact"} and len(curves["exact"]) == 10
    assert sum(y for _, y in drawn(made, "Residuals")["rows"]) == 2 * 200  # a bin's outline has two corners


def test_nothing_was_found_nothing_is_drawn(shown: Show) -> None:
    made = shown(metrics={"train_loss": 0.5})
    assert made.count("<figure") == 2 and "ROC" not in made  # accuracy and loss of the events alone


def test_a_regression_is_described_by_its_errors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def measured(number: int, error: float) -> dict[str, Any]:
        found = evaluated(number, "test", error, 1.0)
        return {("test_rmse" if key == "test_accuracy" else key): value for key, value in found.items()}

    events = [{"kind": "begin", "time": 1.0, "rounds": 2, "parties": ["ada"], "round": 0}]
    metrics = {"test_rmse": 53.5, "test_mae": 40.25, "test_r2": 0.5}
    folder = leave(tmp_path / "run", summary(metrics=metrics), [*events, measured(1, 60.0), measured(2, 53.5)])
    made = page(monkeypatch, capfd, folder)
    said = unescape((folder / "report.html").read_text())
    assert "RMSE 53.5 on test rows" in made.words and "40.25" in said and "test accuracy" not in said
    assert made.lines("round")[0] == [("1", "60"), ("2", "53.5")]


COST = decision.Decision(0.25, "cost", (1.0, 9.0), None, 40, 200)


def found(made: decision.Decision = COST, **changed: Any) -> dict[str, Any]:
    """A summary as the server writes it, of ten test and ten validation rows."""
    margins, positive = np.linspace(-3, 3, 10), np.arange(10) % 3 == 0
    details = {"confusion": [[4, 2], [1, 3]], "decision": decision.details(made, margins, positive)}
    metrics = {f"test_{key}": value for key, value in decision.measures(made, margins, positive).items()}
    return summary(
        metrics={"test_accuracy": 0.7, **metrics}, decision=made.summary("<yes>"),
        details={"test": details, "validation": details}, **changed,
    )  # fmt: skip


def thresholds(folder: Path) -> str:
    """The figures over the threshold, as HTML; "" if there are none."""
    parts = write_page([read_run(folder)]).read_text().split("<figure")
    return "".join(part for part in parts if "ver the threshold</figcaption>" in part)


def test_it_draws_what_every_threshold_comes_to_and_marks_the_chosen_one(tmp_path: Path) -> None:
    said = thresholds(leave(tmp_path / "run", found()))
    assert said.count("<polyline") == 4 and "<title>Cost of a row over the threshold</title>" in said
    assert said.count(">0.25 in use</text>") == 2 and "at the threshold in use, 0.25: precision" in said  # seen, heard
    assert "0.25, in use" in said and "chosen on these rows" in said
    whole = (tmp_path / "run" / "report.html").read_text()
    assert "&lt;yes&gt;" in whole and "<yes>" not in whole and "Confusion matrix at the threshold in use" in whole
    assert "the least cost on 200 validation rows (false positive 1, false negative 9)" in whole
    without = thresholds(leave(tmp_path / "f1", found(decision.Decision(0.4, "f1", None, None, 40, 200))))
    assert without.count("<polyline") == 3 and "Cost of a row" not in without


def test_a_given_threshold_is_drawn_over_the_test_rows_and_none_has_no_section(tmp_path: Path) -> None:
    said = thresholds(leave(tmp_path / "run", found(decision.Decision(0.3, "at"))))
    assert "every threshold on the test rows" in said and "flatter" not in said
    assert "as configured" in (tmp_path / "run" / "report.html").read_text()
    assert thresholds(leave(tmp_path / "none", summary())) == ""


def test_the_words_say_both_thresholds() -> None:
    said = dict(decision_rows(found()))
    assert said["decision"].startswith("'<yes>' from a probability of 0.25 on: the least cost on 200 validation rows")
    assert said["test at 0.5"] == "accuracy 70.00%, precision 0.6, recall 0.75, F1 0.6667, cost 1.1 a row"
    assert said["test at 0.25"].startswith("accuracy 50.00%, precision 0.4286, recall 0.75")
    everyone = decision.Decision(0.0, "f1", None, None, 40, 200)
    assert dict(decision_rows(found(everyone)))["decision"].startswith("always '<yes>': the best F1")
    assert not list(decision_rows(summary()))
