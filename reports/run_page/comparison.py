"""Several runs beside each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from colonnade.common.runtime.numbers import plain
from colonnade.reports.console.summary import best_of_stopped
from colonnade.reports.html.frame import section, table
from colonnade.reports.html.markup import Html, joined, tag
from colonnade.reports.records.run import RecordedRun
from colonnade.reports.run_page.about import headline
from colonnade.reports.run_page.privacy import headline as spent
from colonnade.reports.words import amount, seconds

_METRICS = {"test_accuracy": "test accuracy", "val_accuracy": "validation accuracy", "test_loss": "test loss",
            "test_auc": "test AUC", "test_rmse": "test RMSE"}  # fmt: skip


def named(runs: Sequence[RecordedRun]) -> dict[str, RecordedRun]:
    """Every run by the shortest end of its path that no other has."""
    paths = [run.folder.resolve() for run in runs]
    depth = 1
    while len({path.parts[-depth:] for path in paths}) < len(set(paths)):
        depth += 1
    return {str(Path(*path.parts[-depth:])): run for path, run in zip(paths, runs, strict=True)}


def sentences(runs: Mapping[str, RecordedRun]) -> Html:
    """Every run in a sentence."""
    items = [tag("li", tag("b", name), ": ", headline(run)) for name, run in runs.items()]
    return Html(tag("ul", joined(items, "\n")) + "\n")


def comparison(runs: Mapping[str, RecordedRun]) -> Html:
    """A table, one run a line."""
    heads = ("run", "protocol", "data", "status", "privacy", "parties", "rounds", "time", *_METRICS.values(),
             "up", "down", "missed rounds")  # fmt: skip
    rows = [_row(name, run) for name, run in runs.items()]
    return section("Comparison", table(heads, rows, words=(0, 1, 2, 3, 4), caption="One run a line"))


def _row(name: str, run: RecordedRun) -> tuple[object, ...]:
    said = run.summary
    reached = said["metrics"] if (best := best_of_stopped(said)) is None else best
    return (
        name,
        said["protocol"],
        said.get("dataset", "-"),
        said["status"],
        spent(said),
        len(run.parties),
        said["rounds"],
        seconds(said["seconds"]) + (" simulated" if run.virtual else ""),
        *(_metric(key, reached.get(key)) for key in _METRICS),
        *(_travelled(said, way) for way in ("up", "down")),
        sum((said.get("missing") or {}).values()),
    )


def _metric(key: str, value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.2%}" if key.endswith("accuracy") else plain(value)


def _travelled(said: Mapping[str, Any], way: str) -> str:
    """On the wire, or of tensors where nothing was on one."""
    counted = (said.get("bytes") or {}).get(way) or {}
    if "wire" in counted:
        return amount(counted["wire"])
    return f"{amount(counted['payload'])} of tensors" if "payload" in counted else "-"
