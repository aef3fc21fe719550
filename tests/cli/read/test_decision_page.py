"""The report's pictures of the threshold: the rule, its results, and the curves over all thresholds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from colonnade.reports.decision import decision_rows
from colonnade.reports.records.run import read_run
from colonnade.reports.run_page.page import write_page
from colonnade.server.training.metrics import decision
from tests.cli.read.reports import leave, summary

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
