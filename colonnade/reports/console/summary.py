"""The summary at the end of a run, and its numbers in words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from rich.text import Text

from colonnade.common.config.outside import OF_A_PARTY, OUTSIDE_METRICS
from colonnade.common.run.run_folder import RunFolder
from colonnade.common.text import escaped_lines, plain
from colonnade.reports.console.grid import Grid
from colonnade.reports.console.progress import JUDGED, megabytes, score_words
from colonnade.reports.console.screen import Screen
from colonnade.reports.decision import confusion_of, decision_rows
from colonnade.reports.guarantee import describe_privacy, details, with_ledgers
from colonnade.reports.words import counted
from colonnade.server.training.metrics.best import named, said

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


def show_summary(
    console: Screen, folder: Path, more: Iterable[tuple[str, str]] = (), took: float | None = None
) -> None:
    """Prints a run's results from its summary.json, in at most `LINES` lines: quality, protection, report.

    Args:
        more: further lines of the command: name and words.
        took: seconds that a simulation took.
    """
    if (summary := RunFolder(folder).read_summary()) is None:
        return
    summary = with_ledgers(summary, folder)
    parties = counted(len(summary["parties"]), "party")
    what = f"{summary['protocol']} on {summary['dataset']}, {parties}, {counted(summary['rounds'], 'round')}"
    console.print()
    console.say(f"{what}: {summary['status']}", "bold")
    first = [(name, words, "yellow" if name == WARNING else "") for name, words in _results(summary)]
    first.append(("protection", describe_privacy(summary), "" if summary["privacy"] else "yellow"))
    place = near(folder)
    last = [
        ("traffic", _traffic(summary["bytes"]), ""),
        ("time", _time(summary, took), ""),
        ("report", f"colonnade report {place}", _ACCENT),
        ("folder", str(place), _ACCENT),
    ]
    spare = [(name, words, "") for name, words in (*details(summary), *what_else(summary), *_further(summary), *more)]
    _print(console, first, spare, last)


LINES = 20
"""The most lines of a summary, unless warnings need more."""

_ACCENT = "cyan"


def near(path: Path) -> Path:
    """A path from the working directory, if it lies below."""
    whole = path.resolve()
    return whole.relative_to(Path.cwd()) if whole.is_relative_to(Path.cwd()) else whole


_Line = tuple[str, str, str]


def _print(console: Screen, first: Sequence[_Line], spare: Sequence[_Line], last: Sequence[_Line]) -> None:
    """Prints the spare lines that fit between the others."""
    left = max(len(name) for name, _, _ in (*first, *last))

    def broken(line: _Line) -> list[Text]:
        name, words, style = line
        if len(name) > left:
            name, words = "also", f"{name}: {words}"
        fact = Grid()
        fact.add_row(Text(name.ljust(left), "dim"), Text(escaped_lines(words), style))
        return [*fact.lines(console.room)]

    texts, end = ([text for line in lines for text in broken(line)] for lines in (first, last))
    for more in map(broken, spare):
        if 2 + len(texts) + len(more) + len(end) <= LINES:
            texts += more
    for text in (*texts, *end):
        console.print(text, soft_wrap=True)


def _results(summary: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Quality compared with trivial models, warnings, and which model is kept."""
    yield "quality", quality_words(summary)
    if summary.get(WARNING):
        yield WARNING, str(summary[WARNING])
    if fallen := fallen_words(summary):
        yield WARNING, fallen
    if summary.get("error"):
        yield "ended by", str(summary["error"])
    if (best := best_of_stopped(summary)) is not None:
        key = _decisive(best)
        metric = key.removeprefix("val_")
        yield "model", f"of round {best['round']}, the best: validation {named(metric)} {said(metric, best[key])}"
    elif model := model_words(summary):
        yield "model", model


def quality_words(summary: Mapping[str, Any]) -> str:
    """The kept model's main metrics on test rows, else on validation rows, beside chance and a model without columns.

    `test AUC 0.9196 (chance: 0.5), accuracy 86.86% (always the commonest class: 76.75%), 7815 rows`.
    """
    metrics = {**summary["metrics"], **(best_of_stopped(summary) or {})}
    for part, words in _PARTS.items():
        known = [(key, name) for key, name in _judging(summary, part) if _has(metrics, key)]
        if known:
            said = ", ".join(f"{name} {_beside(summary, metrics, key)}" for key, name in known)
            rows = sum(map(sum, confusion_of(summary, words)))
            return f"{words} {said}" + (f"; {counted(rows, f'{words} row')}" if rows else "")
    return "not measured"


def _judging(summary: Mapping[str, Any], part: str) -> list[tuple[str, str]]:
    """Keys and names of the metrics that judge the model, the main one first."""
    measure = measure_of(summary)
    judged = [(f"{part}{measure}", JUDGED[measure])] if measure else []
    of = f" of {positive}" if (positive := positive_of(summary)) is not None and measure == "auc" else ""
    judged = [(key, name + of) for key, name in judged]
    return [*judged, (f"{part}accuracy", "accuracy"), (f"{part}rmse", "RMSE"), (f"{part}r2", "R2")]


def _has(metrics: Mapping[str, Any], key: str) -> bool:
    return metrics.get(key) is not None


def _beside(summary: Mapping[str, Any], metrics: Mapping[str, Any], key: str) -> str:
    """A metric, and the value of chance or of a model without columns."""
    part, _, name = key.partition("_")
    said = number_words(key, metrics[key])
    verdict = ((summary.get("details") or {}).get(_PARTS[f"{part}_"]) or {}).get("chance") or {}
    if verdict.get("metric") == name:
        return f"{said} (chance: {number_words(key, verdict['chance'])})"
    baseline = summary["metrics"].get(f"{part}_baseline_{name}")
    return (
        said
        if baseline is None or name not in BASELINES
        else f"{said} ({BASELINES[name]}: {number_words(key, baseline)})"
    )


def _further(summary: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Further lines, if there is room; other metrics are in the report."""
    if absent := missing_words(summary):
        yield "missing", absent
    if rest := _rest(summary):
        yield ("also" if best_of_stopped(summary) is None else "last round"), ", ".join(rest)
    yield from own_models(summary["metrics"])
    yield from decision_rows(summary)
    yield from ((name, number_words(key, value)) for key, name, value in extra_metrics(summary["metrics"]))


def _rest(summary: Mapping[str, Any]) -> list[str]:
    """The last round's metrics that are not in `quality_words`."""
    metrics, said = summary["metrics"], {key for part in ("test_",) for key, _ in _judging(summary, part)}
    if best_of_stopped(summary) is not None or not any(_has(metrics, key) for key in said):
        said = set()
    return [
        f"{name} {number_words(key, metrics[key])}"
        for key, name in _named(measure_of(summary)).items()
        if key not in said and _has(metrics, key)
    ]


def _traffic(sent: Mapping[str, Mapping[str, int]]) -> str:
    """Bytes in both directions: on the wire, or in a simulation the tensors'."""
    up, down = (megabytes(sent[way].get("wire", sent[way]["payload"])) for way in ("up", "down"))
    return f"{up} to the server, {down} to the parties"


def _time(summary: Mapping[str, Any], took: float | None) -> str:
    if took is not None:
        return f"{summary['seconds']:.1f} s of delays, simulated in {took:.1f} s"
    first = summary.get("seconds_to_first_round")
    return f"{summary['seconds']:.1f} s" + ("" if first is None else f", of these {first:.1f} s before the first round")


def metric_rows(summary: Mapping[str, Any], more: Mapping[str, str] = MappingProxyType({})) -> list[tuple[str, str]]:
    """Metrics of a run, one per line: for an early stop, the best round's first, then the last one's.

    For unequal classes, the metric that judges the model precedes the accuracy, which is shown with its baseline. For
    two classes the positive one is named. A warning comes last.
    """
    metrics, stopped = summary["metrics"], best_of_stopped(summary) is not None
    last = ", last round" if stopped else ""
    named = {**_named(measure_of(summary)), **more}.items()
    found = [
        (name + last, with_baseline(summary, key, metrics[key])) for key, name in named if metrics.get(key) is not None
    ]
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
    positive: str | None = (summary.get("classes") or {}).get("positive")
    return positive


def measure_of(summary: Mapping[str, Any]) -> str:
    """The metric that judges the model for unequal classes; "" where the accuracy or the RMSE does."""
    if classes := summary.get("classes"):
        return str(classes["measure"]) if classes.get("unequal") and classes["measure"] in JUDGED else ""
    if summary.get("status") == "unfinished":  # evaluations have the metric only on request
        return next((name for name in JUDGED if f"val_{name}" in summary["metrics"]), "")
    return ""


def with_baseline(summary: Mapping[str, Any], key: str, value: float) -> str:
    """Formats a metric, with the baseline of a model without columns where one is needed."""
    said, (part, _, name) = number_words(key, value), key.partition("_")
    baseline = summary["metrics"].get(f"{part}_baseline_{name}")
    if baseline is None or name not in BASELINES or (name == "accuracy" and not measure_of(summary)):
        return said
    return f"{said} ({BASELINES[name]}: {number_words(key, baseline)})"


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
    if model is None:  # written before version 0.3
        return best if summary.get("stopped") else None
    return best if best and model["round"] == best["round"] != summary["rounds"] else None


def model_words(summary: Mapping[str, Any]) -> str:
    """Says which round's model the run keeps; "" if it is the last one."""
    model = summary.get("model")
    if model is None or (model["round"] == summary["rounds"] and not summary.get("privacy")):
        return ""
    return f"of round {model['round']}, {model['why']}"


def fallen_words(summary: Mapping[str, Any]) -> str:
    """Warns that validation has fallen, and what that means for the model; "" if it has not."""
    if not (fallen := summary.get("fallen")):
        return ""
    kept = best_of_stopped(summary) is not None
    return f"{fallen}; {'the model is that of the best round' if kept else 'and the model is that of the last round'}"


def own_models(metrics: Mapping[str, float]) -> list[tuple[str, str]]:
    """A line about every party's own model, if parties have complete ones; with many parties, the worst and the
    best.
    """
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


def _decisive(best: Mapping[str, Any]) -> str:
    """The metric that `best` of a summary was chosen by: its first of the validation rows."""
    return next(name for name in best if name.startswith("val_"))


def best_words(best: Mapping[str, Any]) -> str:
    """Formats `best` of a summary. The loss is omitted if it only broke a tie."""
    if _decisive(best) != "val_loss":
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


def missing_words(summary: Mapping[str, Any]) -> str:
    """Missing responses by party; "" if there were none. With many parties, the most."""
    late = summary.get("late") or {}
    found = {party: count for party, count in (summary.get("missing") or {}).items() if count}
    said = {
        party: f"{party} {counted(count, 'response')}, {late.get(party, 0)} came late" for party, count in found.items()
    }
    if len(said) <= _MANY:
        return "; ".join(said.values())
    return f"{sum(found.values())} responses of {len(said)} parties; most: {said[max(found, key=found.__getitem__)]}"


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
    spent = f"epsilon {answers['accounted']:.2f} at delta {answers['delta']:g}, {answers['releases']}"
    planned = answers.get("planned", 0)  # versions before 0.3 did not write it
    spent += f" of {planned} planned releases" if answers["releases"] < planned else " releases"
    spent += " of a row"
    return f"no guarantee: {answers['void']}; {spent}" if answers["void"] else f"answers noised, {spent}"
