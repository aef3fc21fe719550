"""The table at the end of a run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from rich.console import Console
from rich.table import Table

from colonnade.common.config.outside import OF_A_PARTY, OUTSIDE_METRICS
from colonnade.common.run.numbers import plain
from colonnade.common.run.run_folder import RunFolder
from colonnade.reports.console.progress import JUDGED, megabytes, score_words
from colonnade.reports.decision import decision_rows
from colonnade.reports.guarantee import describe_privacy, details

_OWN = {"test_accuracy_": "parties' test accuracy", "test_rmse_": "parties' test RMSE"}
_PARTS = {"test_": "test", "val_": "validation"}
_MANY = 8  # parties that fit in a line

METRICS = {
    "test_accuracy": "test accuracy",
    "test_auc": "test AUC",
    "test_f1": "test F1",
    "test_rmse": "test RMSE",
    "test_r2": "test R2",
    "test_mae": "test MAE",
    "val_accuracy": "validation accuracy",
    "val_rmse": "validation RMSE",
    "train_loss": "training loss",
    "test_loss": "test loss",
    "val_loss": "validation loss",
}

BASELINES = {"accuracy": "always the commonest class", "rmse": "always the mean"}
"""Baselines of models that know no column, `baseline_` metrics, in words."""

WARNING = "warning"
"""Name of the line that says that a model is no better than such a baseline."""

RANKED = ("_auc", "_average_precision", "_ks", "_gain", "_lift")
"""Ends of metrics that are of one of two classes."""

_STOPPED_BY = {**JUDGED, "loss": "loss", "mae": "MAE", "r2": "R2"}


def show_summary(console: Console, folder: Path) -> None:
    """Prints the content of summary.json, and the run's folder."""
    if (summary := RunFolder(folder).read_summary()) is None:
        return
    table = Table(show_header=False, title=f"{summary['protocol']} on {summary['dataset']}: {summary['status']}")
    table.add_row("parties", str(len(summary["parties"])))
    table.add_row("rounds", str(summary["rounds"]))
    for name, words in (*metric_rows(summary), *own_models(summary["metrics"])):
        table.add_row(name, words, style="yellow" if name == WARNING else None)
    for way, name in (("up", "parties to server"), ("down", "server to parties")):
        payload, wire = (megabytes(summary["bytes"][way][unit]) for unit in ("payload", "wire"))
        table.add_row(name, f"{payload} of tensors, {wire} on the wire")
    table.add_row("privacy", describe_privacy(summary))
    for name, words in (*details(summary), *what_else(summary)):
        table.add_row(name, words)
    first = summary["seconds_to_first_round"]
    table.add_row(
        "time", f"{summary['seconds']:.1f} s" + ("" if first is None else f", first round after {first:.1f} s")
    )
    console.print(table)
    console.print(f"run folder: {folder}", markup=False)
    console.print(f"report: colonnade report {folder}", markup=False, soft_wrap=True)


def metric_rows(summary: Mapping[str, Any], more: Mapping[str, str] = MappingProxyType({})) -> list[tuple[str, str]]:
    """Metrics of a run, one per line: for an early stop, the best round's first, then the last one's.

    For unequal classes, the metric that judges the model precedes the accuracy, which is shown with its baseline. For
    two classes the positive one is named. A warning comes last.

    Args:
        more: additional metrics, with their names.
    """
    metrics, stopped = summary["metrics"], best_of_stopped(summary) is not None
    last = ", last round" if stopped else ""
    named = {**_named(measure_of(summary)), **more}.items()
    found = [(name + last, _with_baseline(summary, key)) for key, name in named if metrics.get(key) is not None]
    found += [(name + last, number_words(key, value)) for key, name, value in extra_metrics(metrics)]
    best = [("best", best_words(kept))] if (kept := summary.get("best")) and kept["round"] != summary["rounds"] else []
    if (positive := positive_of(summary)) is not None and any(key.endswith(RANKED) for key in metrics):
        found.append(("positive class", positive))
    warned = [(WARNING, str(summary[WARNING]))] if summary.get(WARNING) else []
    warned += [(WARNING, fallen)] if (fallen := fallen_words(summary)) else []
    found += [("model", model)] if (model := model_words(summary)) else []
    return [*(best + found if stopped else found + best), *decision_rows(summary), *warned]


def positive_of(summary: Mapping[str, Any]) -> str | None:
    """Name of the class that AUC, average precision, KS, gain and lift refer to; None unless there are two classes."""
    classes = summary.get("classes")
    positive = classes.get("positive") if isinstance(classes, Mapping) else None
    return positive if isinstance(positive, str) else None


def measure_of(summary: Mapping[str, Any]) -> str:
    """The metric that judges the model for unequal classes; "" where the accuracy or the RMSE does."""
    classes = summary.get("classes")
    if isinstance(classes, Mapping):
        measure = classes.get("measure") if classes.get("unequal") else ""
        return str(measure) if measure in JUDGED else ""
    if summary.get("status") == "unfinished":  # evaluations have the metric only on request
        return next((name for name in JUDGED if f"val_{name}" in summary["metrics"]), "")
    return ""


def with_baseline(summary: Mapping[str, Any], key: str, value: float) -> str:
    """Formats a metric, with the baseline of a model without columns where one is needed.

    Args:
        value: of the last or the best round: the baseline is the same.
    """
    said, (part, _, name) = number_words(key, value), key.partition("_")
    baseline = summary["metrics"].get(f"{part}_baseline_{name}")
    if baseline is None or name not in BASELINES or (name == "accuracy" and not measure_of(summary)):
        return said
    return f"{said} ({BASELINES[name]}: {number_words(key, baseline)})"


def _with_baseline(summary: Mapping[str, Any], key: str) -> str:
    return with_baseline(summary, key, summary["metrics"][key])


def _named(measure: str) -> dict[str, str]:
    """Names of metrics in order: the one that judges the model before the accuracy."""
    named: dict[str, str] = {}
    for key, name in METRICS.items():
        part = key.removesuffix("accuracy")
        if measure and part in _PARTS:
            named[part + measure] = f"{_PARTS[part]} {JUDGED[measure]}"
        named.setdefault(key, name)
    return named


def extra_metrics(metrics: Mapping[str, Any]) -> Iterator[tuple[str, str, float]]:
    """Yields metrics of other packages on test and validation rows: key, name and value."""
    known = OUTSIDE_METRICS.taken
    for part, words in _PARTS.items():
        named = {key: key.removeprefix(part) for key in metrics if key.startswith(part)}
        for key, name in named.items():
            value = metrics[key]
            if name not in known and not name.startswith(OF_A_PARTY) and isinstance(value, int | float):
                yield key, f"{words} {name.replace('_', ' ')}", value


def best_of_stopped(summary: Mapping[str, Any]) -> dict[str, Any] | None:
    """The best round of a run whose model is that round's; None if the model is the last round's."""
    best, model = summary.get("best"), summary.get("model")
    if not isinstance(model, Mapping):  # written before version 0.3
        return best if summary.get("stopped") else None
    return best if best and model.get("round") == best["round"] != summary["rounds"] else None


def model_words(summary: Mapping[str, Any]) -> str:
    """Says which round's model the run keeps; "" if it is the last one."""
    model = summary.get("model")
    if not isinstance(model, Mapping) or (model["round"] == summary["rounds"] and not summary.get("privacy")):
        return ""
    return f"of round {model['round']}, {model['why']}"


def fallen_words(summary: Mapping[str, Any]) -> str:
    """Warns that validation has fallen, and what that means for the model; "" if it has not."""
    if not (fallen := summary.get("fallen")):
        return ""
    kept = best_of_stopped(summary) is not None
    return f"{fallen}; {'the model is that of the best round' if kept else 'and the model is that of the last round'}"


def own_models(metrics: Mapping[str, float]) -> list[tuple[str, str]]:
    """A line about every party's own model, where each has a whole one; for many parties, the worst and the best."""
    lines = []
    for prefix, name in _OWN.items():
        found = {key.removeprefix(prefix): value for key, value in metrics.items() if key.startswith(prefix)}
        said = {party: number_words(prefix, value) for party, value in found.items()}
        if len(found) > _MANY:
            low, high = (choose(found, key=found.__getitem__) for choose in (min, max))
            lines.append((name, f"{low} {said[low]} to {high} {said[high]}"))
        elif found:
            lines.append((name, ", ".join(f"{party} {words}" for party, words in said.items())))
    return lines


def number_words(key: str, value: float) -> str:
    """Formats a metric: accuracies in per cent, errors in their own units to four digits."""
    if "accuracy" in key:
        return f"{value:.2%}"
    return plain(value) if "rmse" in key or "mae" in key else f"{value:.4f}"


def best_words(best: Mapping[str, Any]) -> str:
    """Formats `best` of a summary. The loss is omitted if it only broke a tie."""
    if next((name for name in best if name.startswith("val_")), "") != "val_loss":
        best = {name: value for name, value in best.items() if name not in ("val_loss", "test_loss")}
    test = best.get("test_accuracy", best.get("test_rmse"))
    tested = "" if test is None else f", test {score_words(best, 'test', _STOPPED_BY)}"
    return f"round {best['round']}: validation {score_words(best, names=_STOPPED_BY)}{tested}"


def pace_words(pace: Mapping[str, Mapping[str, Any]]) -> str:
    """Formats `pace` of a summary: turns by party, and staleness of messages; for many parties, the extremes."""
    if len(pace) > _MANY:
        slowest, fastest = (choose(pace, key=lambda party: pace[party]["turns"]) for choose in (min, max))
        return f"{slowest} {pace[slowest]['turns']} to {fastest} {pace[fastest]['turns']}"
    stale = {party: "" if p["staleness"] is None else f" (staleness {p['staleness']:g})" for party, p in pace.items()}
    return ", ".join(f"{party} {p['turns']}{stale[party]}" for party, p in pace.items())


def label_words(labels: dict[str, Any]) -> str:
    if labels["epsilon"] is None:
        return "noised from the seed, which everyone knows: no guarantee"
    return f"noised once, epsilon {labels['epsilon']:.2f} at delta 0"


def forest_words(forest: Mapping[str, Any]) -> str:
    """Formats `forest` of a summary: `100, of depth 5 at most`."""
    return f"{forest['trees']}, of depth {forest['depth']} at most"


def gain_words(parties: Mapping[str, Mapping[str, Any]]) -> str:
    """The parties' shares in the gain of all splits; for many parties, the extremes."""
    said = {name: f"{own['gain']:.1%}" for name, own in parties.items()}
    if len(said) > _MANY:
        low, high = (choose(parties, key=lambda name: parties[name]["gain"]) for choose in (min, max))
        return f"{low} {said[low]} to {high} {said[high]}"
    return ", ".join(f"{name} {share}" for name, share in said.items())


def gradient_words(forest: Mapping[str, Any]) -> str:
    bits = f"{forest['precision']} bits besides the sign"
    if forest["gradients"] == "clear":
        return f"IN THE CLEAR to every party, {bits}"
    return f"encrypted, {bits}; {forest['security']} bits of security (docs/protocols/secureboost.md)"


OF_TRAINING = ("turns", "went back", "trees", "gain")
"""Lines of `what_else` that are not about privacy."""


STARTS = {
    "secret": "secret: each member drew its own",
    "public": "public, from federation.seed: every member can compute the others' first models",
    "seeded": "from federation.seed: one process held the tables of all members",
}
"""`start` of a summary, in words."""


def what_else(summary: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Lines about features that only some runs use."""
    if (start := summary.get("start")) in ("public", "seeded") and not summary.get("forest"):
        yield "starts", STARTS[start]
    if (labels := summary.get("label_privacy")) is not None:
        yield "training labels", label_words(labels)
    if (answers := summary.get("answer_privacy")) is not None:
        yield "training labels", answer_words(answers)
    if (claim := summary.get("theorem")) is not None:
        yield "Theorem 4.1", claim_words(claim)
    if (pace := summary.get("pace")) is not None:
        yield "turns", pace_words(pace)
    if (forest := summary.get("forest")) is not None:
        yield "trees", forest_words(forest)
        yield "gain", gain_words(forest["parties"])
        yield "gradients", gradient_words(forest)
    if (back := summary.get("back_offs")) is not None:
        yield "went back", back_off_words(back)


def back_off_words(back: Mapping[str, Any]) -> str:
    times = "once" if back["times"] == 1 else f"{back['times']} times"
    return f"{times} after a divergence; learning rates are {back['factor']:.3g} of those configured"


def claim_words(claim: Mapping[str, Any]) -> str:
    said = f"epsilon {claim['epsilon_bar']:.2f}, delta {claim['delta_bar']:.2g} for labels"
    return f"{said}: the paper's claim, not a guarantee (docs/protocols/czofo.md)"


def answer_words(answers: dict[str, Any]) -> str:
    spent = f"epsilon {answers['accounted']:.2f} at delta {answers['delta']:g}, {answers['releases']} releases of a row"
    return f"no guarantee: {answers['void']}; {spent}" if answers["void"] else f"answers noised, {spent}"
