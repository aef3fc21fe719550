"""The report's section on how good the model is: confusion, calibration, or errors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from colonnade.reports.records.run import read_run
from colonnade.reports.run_page.quality import quality
from tests.cli.read.reports import evaluated, leave, page, summary

BIN = {"from": 0.9, "to": 1.0, "rows": 9, "confidence": 0.95, "share": 0.875}
DETAILS = {"test": {"confusion": [[5, 1], [2, 7]], "reliability": [BIN]}}
METRICS = {"test_accuracy": 0.8, "test_auc": 0.91234, "test_brier": 0.125, "val_auc": 0.5}


def test_it_shows_the_test_rows_with_their_classes(tmp_path: Path) -> None:
    folder = leave(tmp_path / "run", summary(metrics=METRICS, details=DETAILS))
    (folder / "config.yaml").write_text(yaml.safe_dump({"federation": {"classes": ["no<", "yes"]}}))
    said = quality(read_run(folder))
    assert "Metrics on the test rows" in said and "0.9123" in said and "0.125" in said
    assert (
        "Confusion matrix" in said
        and "true no&lt;" in said
        and "predicted yes" in said
        and "0.9 to 1" in said
        and "87.5%" in said
    )


def test_nothing_was_found_nothing_is_shown(tmp_path: Path) -> None:
    assert quality(read_run(leave(tmp_path / "run"))) == ""


@pytest.mark.parametrize(
    "details", [{}, {"test": 3}, {"test": {"confusion": "x", "reliability": [1]}}, {"test": {"confusion": [1, 2]}}]
)
def test_details_that_were_altered_are_left_out(tmp_path: Path, details: Any) -> None:
    said = quality(read_run(leave(tmp_path / "run", summary(metrics=METRICS, details=details))))
    assert "0.9123" in said and "<table" in said and "Calibration" not in said and "Confusion matrix" not in said


def test_a_regression_is_described_by_its_errors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def measured(number: int, error: float) -> dict[str, Any]:
        found = evaluated(number, "test", error, 1.0)
        return {("test_rmse" if key == "test_accuracy" else key): value for key, value in found.items()}

    events = [{"kind": "begin", "time": 1.0, "rounds": 2, "parties": ["ada"], "round": 0}]
    metrics = {"test_rmse": 53.5, "test_mae": 40.25, "test_r2": 0.5}
    folder = leave(tmp_path / "run", summary(metrics=metrics), [*events, measured(1, 60.0), measured(2, 53.5)])
    page(monkeypatch, capfd, folder)
    said = (folder / "report.html").read_text()
    assert "test RMSE 53.5" in said and "40.25" in said and "test accuracy" not in said
