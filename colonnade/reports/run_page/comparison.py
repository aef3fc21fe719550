"""The page of several runs: a recommendation, their values beside each other, and their curves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from colonnade.common.text import plain
from colonnade.reports import guarantee
from colonnade.reports.console.summary import best_of_stopped, measure_of
from colonnade.reports.decision import confusion_of
from colonnade.reports.html.charts import Axis, Trend, line_chart
from colonnade.reports.records.run import BASELINES, RecordedRun
from colonnade.reports.run_page.about import headline
from colonnade.reports.standings.contender import (
    Contender,
    Estimate,
    Measure,
    Protection,
    estimated,
    is_reference,
)
from colonnade.reports.standings.page import ComparisonPage, Figure, ValueTable
from colonnade.reports.words import amount, seconds

_METRICS = {
    "test_auc": "test AUC", "test_balanced_accuracy": "test balanced accuracy", "test_accuracy": "test accuracy",
    "test_baseline_accuracy": "always the commonest class", "val_accuracy": "validation accuracy",
    "test_rmse": "test RMSE", "test_baseline_rmse": "always the mean", "test_r2": "test R2", "test_loss": "test loss",
}  # fmt: skip
_OF_UNEQUAL = ("test_balanced_accuracy", "test_baseline_accuracy")  # of runs with unequal classes
_FEW = 5  # runs that are columns of the table, so that paper has room for it
_OTHER_ROWS = "These runs are tested on different rows: their values say nothing about which is better."
_OTHER_LABELS = (
    "These runs are tested on rows with the same keys and other labels: their values say nothing about which is better."
)
_NOT_TESTED = "Not all of these runs have a value on test rows: nothing is recommended."


def named(runs: Sequence[RecordedRun]) -> dict[str, RecordedRun]:
    """Names every run by the shortest unique end of its path."""
    paths = [run.folder.resolve() for run in runs]
    depth = 1
    while len({path.parts[-depth:] for path in paths}) < len(set(paths)):
        depth += 1
    return {str(Path(*path.parts[-depth:])): run for path, run in zip(paths, runs, strict=True)}


def comparison_page(runs: Sequence[RecordedRun]) -> str:
    by_name = named(runs)
    first = runs[0].summary
    metric = measure_of(first) or ("rmse" if first.get("targets") or "test_rmse" in first["metrics"] else "accuracy")
    measure = Measure(metric, metric != "rmse")
    each = [_standing(name, run, metric) for name, run in by_name.items()]
    hashed = [run for run in runs if run.summary.get("rows_hash")]  # which older versions did not write
    same = len({(run.summary.get("dataset"), _rows(run, "test"), _baseline(run)) for run in runs}) == 1
    hashes = {run.summary["rows_hash"]["test"] for run in hashed}
    sizes = {tuple(map(sum, confusion_of(run.summary, "test"))) for run in runs}  # of the classes
    relabelled = len(hashed) == len(runs) and len(hashes) == 1 and len(sizes) > 1 and () not in sizes
    same = same and len(hashes) < 2
    untested = any(one.test is None and not one.cause for one in each)
    page = ComparisonPage(
        f"{len(runs)} runs compared", measure, _rows(runs[0], "test"), _rows(runs[0], "validation"),
        [*each, *_no_column(runs[0], metric)] if same else each, _values(by_name),
        facts=[("Runs", [(name, _sentence(run)) for name, run in by_name.items()])], more=_curves(by_name, measure),
        apart=_OTHER_LABELS if relabelled else _OTHER_ROWS if not same else _NOT_TESTED if untested else "",
    )  # fmt: skip
    return page.html()


def _standing(name: str, run: RecordedRun, metric: str) -> Contender:
    said, reached = run.summary, _reached(run)
    epsilon, protection = _protection(run)
    ended = said["status"] in ("completed", "unfinished")
    sent = [found for way in ("up", "down") if (found := _bytes(said, way)) is not None]
    return Contender(
        name, said["protocol"], "" if said["protocol"] in name else said["protocol"],
        _estimate(reached.get(f"test_{metric}"), run, "test", metric),
        _estimate(reached.get(f"val_{metric}"), run, "validation", metric),
        sum(sent) if sent else None, said["seconds"], epsilon, protection,
        str(said.get("warning") or "") if ended else f"{said['status']}: {said.get('error') or 'no reason given'}",
        is_reference(said["protocol"]),
    )  # fmt: skip


def _estimate(value: float | None, run: RecordedRun, part: str, metric: str) -> Estimate | None:
    return None if value is None else estimated(value, run.summary, part, metric)


def _rows(run: RecordedRun, part: str) -> int:
    """Number of rows of a part; 0 if the summary does not say it."""
    return sum(map(sum, confusion_of(run.summary, part)))


def _baseline(run: RecordedRun) -> tuple[object, ...]:
    return tuple(run.summary["metrics"].get(key) for key in BASELINES)


def _no_column(run: RecordedRun, metric: str) -> list[Contender]:
    """A model without columns, as a reference."""
    found = run.summary["metrics"].get(f"test_baseline_{metric}")
    if metric in ("auc", "balanced_accuracy"):
        found = 1 / max(2, len(confusion_of(run.summary, "test")))
    name = "always the mean" if metric == "rmse" else "always the commonest class"
    return [] if found is None else [Contender(name, test=Estimate(found), reference=True)]


def _protection(run: RecordedRun) -> tuple[float | None, Protection]:
    said = run.summary
    keys = run.sections["federation"].get("protocol") or {}
    if forest := said.get("forest"):
        keys = {**keys, "gradients": forest["gradients"]}
    noise, why = "", None
    if said.get("privacy") is not None:
        why = guarantee.void(said)
        noise = guarantee.describe_person(said) if why is None else "noise without a guarantee"
    known = [epsilon for epsilon in guarantee.by_party(said).values() if epsilon is not None]
    person = (said.get("person") or {}).get("epsilon")
    epsilon = person if person is not None else max(known, default=None)
    return epsilon, Protection.of(said["protocol"], keys, noise=noise, guaranteed=why is None)


def _sentence(run: RecordedRun) -> str:
    warning = run.summary.get("warning")
    return headline(run) + (f" Warning: {warning}." if warning else "")


def _curves(runs: Mapping[str, RecordedRun], measure: Measure) -> list[Figure]:
    """The metric and the training loss against rounds, one line a run."""
    found = []
    part, words = "val", "Validation"
    if not any(run.trace.series.get(f"val_{measure.metric}") for run in runs.values()):
        part, words = "test", "Test"
    for key, title, say in (
        (f"{part}_{measure.metric}", f"{words} {measure.name}", measure.say),
        ("train_loss", "Training loss", plain),
    ):
        lines = [
            Trend(name, [(point.round, point.value) for point in run.trace.series.get(key, ())], colour)
            for colour, (name, run) in enumerate(runs.items(), 1)
        ]
        if drawn := [line for line in lines if line.points]:
            chart = line_chart(drawn, Axis("round", plain), Axis(title, say), title=f"{title} against rounds")
            found.append(Figure(f"{title} against rounds", chart))
    return found


def _values(runs: Mapping[str, RecordedRun]) -> ValueTable:
    metrics = {key: words for key, words in _METRICS.items() if any(key in _reached(run) for run in runs.values())}
    heads = ("run", "protocol", "data", "status", "parties", "rounds", "time", *metrics.values(),
             "up", "down", "missed rounds")  # fmt: skip
    found = ValueTable(heads, [_row(name, run, tuple(metrics)) for name, run in runs.items()], (0, 1, 2, 3)).full()
    return found.turned() if len(runs) <= _FEW else found


def _reached(run: RecordedRun) -> Mapping[str, Any]:
    """Metrics of the best round of a run that stopped early, else of the last, with the baselines."""
    said = run.summary
    found = dict(said["metrics"])
    if (best := best_of_stopped(said)) is not None:
        found = {**best, **{key: found[key] for key in BASELINES if key in found}}
    left_out = () if measure_of(said) else _OF_UNEQUAL
    return {key: value for key, value in found.items() if key not in left_out}


def _row(name: str, run: RecordedRun, metrics: Sequence[str]) -> tuple[object, ...]:
    said, reached = run.summary, _reached(run)
    return (
        name,
        said["protocol"],
        said.get("dataset", "-"),
        said["status"],
        len(run.parties),
        said["rounds"],
        seconds(said["seconds"]) + (" simulated" if run.virtual else ""),
        *(_metric(key, reached.get(key)) for key in metrics),
        *(_travelled(said, way) for way in ("up", "down")),
        sum((said.get("missing") or {}).values()),
    )


def _metric(key: str, value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.2%}" if key.endswith("accuracy") else plain(value)


def _travelled(said: Mapping[str, Any], way: str) -> str:
    found = _bytes(said, way)
    return "-" if found is None else amount(found)


def _bytes(said: Mapping[str, Any], way: str) -> float | None:
    """Bytes on the wire, or of tensors if there was none."""
    counted = (said.get("bytes") or {}).get(way) or {}
    found: float | None = counted.get("wire", counted.get("payload"))
    return found
