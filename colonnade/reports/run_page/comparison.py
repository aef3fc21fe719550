"""Comparison of several runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from colonnade.common.run.numbers import plain
from colonnade.reports.console.summary import best_of_stopped, measure_of
from colonnade.reports.html.frame import section, table
from colonnade.reports.html.markup import Html, joined, tag
from colonnade.reports.records.run import RecordedRun
from colonnade.reports.run_page.about import headline
from colonnade.reports.run_page.privacy import headline as spent
from colonnade.reports.words import amount, seconds

_METRICS = {
    "test_auc": "test AUC", "test_balanced_accuracy": "test balanced accuracy", "test_accuracy": "test accuracy",
    "test_baseline_accuracy": "always the commonest class", "val_accuracy": "validation accuracy",
    "test_rmse": "test RMSE", "test_baseline_rmse": "always the mean", "test_r2": "test R2", "test_loss": "test loss",
}  # fmt: skip
_BASELINES = ("test_baseline_accuracy", "test_baseline_rmse")  # equal in all rounds: they depend only on the rows
_OF_UNEQUAL = ("test_balanced_accuracy", "test_baseline_accuracy")  # of runs with unequal classes


def named(runs: Sequence[RecordedRun]) -> dict[str, RecordedRun]:
    """Names every run by the shortest unique end of its path."""
    paths = [run.folder.resolve() for run in runs]
    depth = 1
    while len({path.parts[-depth:] for path in paths}) < len(set(paths)):
        depth += 1
    return {str(Path(*path.parts[-depth:])): run for path, run in zip(paths, runs, strict=True)}


def sentences(runs: Mapping[str, RecordedRun]) -> Html:
    items = [tag("li", tag("b", name), ": ", headline(run), _warned(run)) for name, run in runs.items()]
    return Html(tag("ul", joined(items, "\n")) + "\n")


def _warned(run: RecordedRun) -> str:
    warning = run.summary.get("warning")
    return f" Warning: {warning}." if warning else ""


def comparison(runs: Mapping[str, RecordedRun]) -> Html:
    metrics = {key: words for key, words in _METRICS.items() if any(key in _reached(run) for run in runs.values())}
    heads = ("run", "protocol", "data", "status", "privacy", "parties", "rounds", "time", *metrics.values(),
             "up", "down", "missed rounds", "warning")  # fmt: skip
    rows = [_row(name, run, tuple(metrics)) for name, run in runs.items()]
    if not any(run.summary.get("warning") for run in runs.values()):
        heads, rows = heads[:-1], [row[:-1] for row in rows]
    return section("Comparison", table(heads, rows, words=(0, 1, 2, 3, 4), caption="One run a line"))


def _reached(run: RecordedRun) -> Mapping[str, Any]:
    """Metrics of the best round of a run that stopped early, else of the last, with the baselines."""
    said = run.summary
    found = dict(said["metrics"])
    if (best := best_of_stopped(said)) is not None:
        found = {**best, **{key: found[key] for key in _BASELINES if key in found}}
    left_out = () if measure_of(said) else _OF_UNEQUAL
    return {key: value for key, value in found.items() if key not in left_out}


def _row(name: str, run: RecordedRun, metrics: Sequence[str]) -> tuple[object, ...]:
    said, reached = run.summary, _reached(run)
    return (
        name,
        said["protocol"],
        said.get("dataset", "-"),
        said["status"],
        spent(said),
        len(run.parties),
        said["rounds"],
        seconds(said["seconds"]) + (" simulated" if run.virtual else ""),
        *(_metric(key, reached.get(key)) for key in metrics),
        *(_travelled(said, way) for way in ("up", "down")),
        sum((said.get("missing") or {}).values()),
        said.get("warning") or "",
    )


def _metric(key: str, value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.2%}" if key.endswith("accuracy") else plain(value)


def _travelled(said: Mapping[str, Any], way: str) -> str:
    """Bytes on the wire, or of tensors if nothing was sent on one."""
    counted = (said.get("bytes") or {}).get(way) or {}
    if "wire" in counted:
        return amount(counted["wire"])
    return f"{amount(counted['payload'])} of tensors" if "payload" in counted else "-"
