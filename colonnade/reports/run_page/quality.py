"""How good the model is on the test rows: charts for two classes, for several, and for numbers."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from colonnade.common.run.json_text import is_number
from colonnade.common.text import plain
from colonnade.reports.console.summary import WARNING, extra_metrics, metric_rows, own_models, positive_of
from colonnade.reports.decision import confusion_of
from colonnade.reports.html.charts import Axis, Bar, Mark, Trend, heat_map, line_chart, row_chart
from colonnade.reports.html.page import Html
from colonnade.reports.records.run import RecordedRun
from colonnade.reports.run_page.about import class_names, say
from colonnade.reports.words import percent

_METRICS = {
    "auc": "AUC", "average_precision": "average precision", "balanced_accuracy": "balanced accuracy",
    "f1": "F1 (mean of the classes)", "log_loss": "log loss", "brier": "Brier score",
    "ece": "expected calibration error", "ks": "KS statistic", "lift": "lift of the top decile",
    "gain": "positive class's rows in the top decile", "baseline_accuracy": "accuracy of always the commonest class",
    "rmse": "RMSE", "mae": "MAE", "r2": "R2", "baseline_rmse": "RMSE of always the mean",
}  # fmt: skip
_MOST, _TABLE = 30, 10  # classes of a heat map, and of a table beside it
_PAIRS = 15  # that are shown instead
_SHARE = (0.0, 1.0)
_TENTHS = [number / 10 for number in range(11)]
_DASHES = ("", "7 3", "2 3")

Figure = dict[str, Any]
Counts = Sequence[Sequence[int]]
Point = tuple[float, float]


def quality(run: RecordedRun) -> dict[str, Any] | None:
    """Charts and numbers of the kept evaluation on the test rows, else on the validation rows; None without any."""
    metrics, details = run.summary["metrics"], run.summary.get("details") or {}
    facts = [*(row for row in metric_rows(run.summary) if row[0] != WARNING), *own_models(metrics)]
    for part, prefix in (("test", "test"), ("validation", "val")):
        rows, found = list(_numbers(metrics, prefix)), details.get(part) or {}
        if not rows and not found:
            continue
        counts, decision = confusion_of(run.summary, part), found.get("decision") or {}
        figures = [
            *_confused(counts, class_names(run), ""),
            *_confused(decision.get("confusion") or (), class_names(run), " at the threshold in use"),
            *_ranking(found.get("gains") or (), _positive(counts), positive_of(run.summary)),
            *_calibration(found.get("reliability") or (), positive_of(run.summary)),
            *_thresholds(run, part, decision.get("curve") or ()),
            *_residuals(found.get("residuals")),
        ]
        return {"part": part, "figures": figures, "facts": facts, "numbers": rows,
                "off": _off(found.get("residuals"))}  # fmt: skip
    return {"part": "", "figures": [], "facts": facts, "numbers": [], "off": ""} if facts else None


def _numbers(metrics: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, str]]:
    for key, name in _METRICS.items():
        if is_number(value := metrics.get(f"{prefix}_{key}")):
            yield name, say(key, value)
    for key, _, value in extra_metrics(metrics):
        if key.startswith(f"{prefix}_"):
            yield key.removeprefix(f"{prefix}_").replace("_", " "), plain(value)


def _confused(counts: Counts, names: Sequence[str], of: str) -> Iterator[Figure]:
    """The confusion matrix; with very many classes the most confused pairs."""
    if not counts:
        return
    named = names if len(names) == len(counts) else [str(at) for at in range(len(counts))]
    total = sum(map(sum, counts)) or 1
    right = sum(counts[at][at] for at in range(len(counts)))
    said = f"{percent(right / total)} of the rows lie on the diagonal; the stronger a colour, the more of its line."
    if len(counts) <= _MOST:
        picture = heat_map(counts, named, title=f"Confusion matrix{of}")
        table = _matrix(counts, named) if len(counts) <= _TABLE else None  # the picture has the numbers too
        yield _figure(f"Confusion matrix{of}", picture, said, wide=len(counts) > _TABLE, table=table)
        return
    pairs = sorted(
        ((line[said_as], true, said_as) for true, line in enumerate(counts) for said_as in range(len(line))
         if true != said_as and line[said_as]), reverse=True)[:_PAIRS]  # fmt: skip
    bars = [Bar(f"{named[true]} taken for {named[guess]}", number, f"{number} of {sum(counts[true])}", colour=2)
            for number, true, guess in pairs]  # fmt: skip
    picture = row_chart(bars, Axis("rows", plain), caption="Classes that are confused most")
    yield _figure(f"Confusions{of}", picture, f"{percent(right / total)} of the rows get their own class.", wide=True)


def _matrix(counts: Counts, names: Sequence[str]) -> dict[str, Any]:
    rows = [(f"true {name}", *line) for name, line in zip(names, counts, strict=True)]
    return {"heads": ("true, said", *names), "rows": rows, "caption": "Rows by true and said class"}


def _ranking(gains: Sequence[Mapping[str, float]], share: float | None, positive: str | None) -> Iterator[Figure]:
    """ROC, precision and recall, and gains; `share` is the positive class's among the rows, if known."""
    if not gains:
        return
    measured = [(each["rows"], each["found"]) for each in gains]
    which = "the positive class" if positive is None else repr(positive)
    if share:
        others = [(max(0.0, (rows - found * share) / (1 - share)), found) for rows, found in measured]
        area = sum((b[0] - a[0]) * (a[1] + b[1]) / 2 for a, b in itertools.pairwise(others))
        yield _lines(
            "ROC", [Trend("model", others), Trend("by chance", [(0, 0), (1, 1)], 6, "2 3")],
            Axis("share of the other rows that are taken too", percent, _SHARE), Axis("found", percent, _SHARE),
            said=f"Share of {which} that is found, against false alarms: an area of {plain(area)} is the AUC.",
        )  # fmt: skip
        all_found = next(at for at, (_, found) in enumerate(measured) if found >= 1.0)  # then precision only falls
        precise = [(found, found * share / rows) for rows, found in measured[: all_found + 1] if rows]
        yield _lines(
            "Precision and recall", [Trend("model", precise), Trend("by chance", [(0, share), (1, share)], 6, "2 3")],
            Axis(f"recall: share of {which} that is found", percent, _SHARE), Axis("precision", percent, _SHARE),
            said=f"Precision is the share of {which} among the rows that are taken for it.",
        )  # fmt: skip
    drawn = [Trend("model", measured), Trend("by chance", [(0, 0), (1, 1)], 6, "2 3")]
    marks, said = [], ""
    if share:
        drawn.append(Trend("best possible", [(0, 0), (share, 1), (1, 1)], 3, "7 3"))
        gaps = [found - (rows - found * share) / (1 - share) for rows, found in measured]
        at = gaps.index(max(gaps))
        marks = [Mark(measured[at][0], f"KS {plain(gaps[at], 3)}", measured[at][1])]
        said = f" KS, {plain(gaps[at])}, is the largest distance of the two classes' shares."
    tenth = next((found for rows, found in measured if rows >= 0.0999), 0.0)
    yield _lines(
        "Cumulative gains", drawn, Axis("share of the rows, the likeliest first", percent, _SHARE),
        Axis("found", percent, _SHARE), marks=marks,
        said=f"The tenth of the rows with the highest scores has {percent(tenth)} of {which}.{said}",
        table={"heads": ("first rows", "found", "lift"), "caption": "Gain and lift", "rows": _deciles(measured)},
    )  # fmt: skip


def _deciles(measured: Sequence[Point]) -> list[tuple[str, str, str]]:
    rows = []
    for tenth in _TENTHS[1:]:
        after = next(at for at, (taken, _) in enumerate(measured) if taken >= tenth - 1e-9)
        (low, before), (high, then) = measured[max(after - 1, 0)], measured[after]
        share = 0.0 if high == low else (tenth - low) / (high - low)
        found = before + (then - before) * share if high > low else then
        rows.append((percent(tenth), percent(found), f"{found / tenth:.2f}"))
    return rows


def _positive(confusion: Counts) -> float | None:
    if len(confusion) != 2:
        return None
    counts = [sum(line) for line in confusion]
    return counts[1] / sum(counts) if all(counts) else None


def _calibration(bins: Sequence[Mapping[str, float]], positive: str | None) -> Iterator[Figure]:
    if not bins:
        return
    what = "share that is right" if positive is None else f"share that is {positive!r}"
    points = [(each["confidence"], each["share"]) for each in bins]
    rows = [(f"{each['from']:g} to {each['to']:g}", each["rows"], percent(each["confidence"]), percent(each["share"]))
            for each in bins]  # fmt: skip
    yield _lines(
        "Calibration", [Trend("model", points), Trend("exact", [(0, 0), (1, 1)], 6, "2 3")],
        Axis("predicted probability", plain, _SHARE), Axis(what, percent, _SHARE),
        marks=[Mark(x, "", y) for x, y in points],
        said="Probabilities can be taken at their word where the line lies on the dotted one.",
        table={"heads": ("probability", "rows", "mean probability", "share"), "rows": rows,
               "caption": "Predicted probability and share of right predictions"},
    )  # fmt: skip


def _thresholds(run: RecordedRun, part: str, points: Sequence[Mapping[str, Any]]) -> Iterator[Figure]:
    """Precision, recall and F1, and the cost of a row, over all thresholds."""
    decision, on, why = run.summary.get("decision"), part, ""
    if decision and decision["by"] not in ("at", ""):  # the rows that it was chosen on
        of_validation = ((run.summary.get("details") or {}).get("validation") or {}).get("decision")
        if of_validation:
            points, on, why = (
                of_validation["curve"],
                "validation",
                " It was chosen on these rows, so that they flatter it.",
            )
    if not (points := points or _from_gains(run, part)):
        return
    at = decision["threshold"] if decision else 0.5
    shares = [
        Trend(name, [(each["threshold"], each[key]) for each in points if each[key] is not None], place, dash)
        for place, ((key, name), dash) in enumerate(
            zip({"precision": "precision", "recall": "recall", "f1": "F1"}.items(), _DASHES, strict=True), 1)
    ]  # fmt: skip
    yield _lines(
        "Over the threshold", shares, Axis("threshold: least probability to be taken", plain, _SHARE),
        Axis("", percent, _SHARE), marks=[Mark(at, f"{plain(at)} in use")], table=_by_threshold(points, at),
        said=f"Results of every threshold on the {on} rows.{why}", about=_at(shares, at),
    )  # fmt: skip
    if costs := [(each["threshold"], each["cost"]) for each in points if each.get("cost") is not None]:
        top = max(cost for _, cost in costs) or 1.0
        trend = Trend("cost", costs, 4)
        yield _lines(
            "Cost of a row over the threshold", [trend], Axis("threshold", plain, _SHARE), Axis("", plain, (0.0, top)),
            marks=[Mark(at, f"{plain(at)} in use")], about=_at([trend], at),
            said="The mean cost of false positives and false negatives.",
        )  # fmt: skip


def _at(curves: Sequence[Trend], at: float) -> str:
    near = [f"{curve.name} {plain(min(curve.points, key=lambda point: abs(point[0] - at))[1])}"
            for curve in curves if curve.points]  # fmt: skip
    return f"at the threshold in use, {plain(at)}: {', '.join(near)}"


def _from_gains(run: RecordedRun, part: str) -> list[dict[str, Any]]:
    """The same points without a configured threshold: every point of a gains curve is one."""
    if (share := _positive(confusion_of(run.summary, part))) is None:
        return []
    made = []
    for each in run.summary["details"][part].get("gains") or ():
        if each.get("score") is None:  # of no row, or of version 0.2
            continue
        rows, found = each["rows"], each["found"]
        hits = found * share
        made.append({
            "threshold": each["score"], "precision": hits / rows, "recall": found, "cost": None,
            "f1": 2 * hits / (rows + share), "accuracy": 1 - share - rows + 2 * hits,
        })  # fmt: skip
    return made[::-1]


def _by_threshold(points: Sequence[Mapping[str, Any]], at: float) -> dict[str, Any]:
    columns = {"accuracy": "accuracy", "precision": "precision", "recall": "recall", "f1": "F1"}
    if any(each.get("cost") is not None for each in points):
        columns["cost"] = "cost of a row"
    rows = []
    for wanted in sorted({*_TENTHS, at}):
        here = min(points, key=lambda each: abs(each["threshold"] - wanted))
        name = f"{plain(wanted)}, in use" if wanted == at else plain(wanted)
        rows.append((name, *(_cell(key, here.get(key)) for key in columns)))
    return {"heads": ("threshold", *columns.values()), "rows": rows, "caption": "By threshold"}


def _cell(key: str, value: Any) -> str:
    if value is None:
        return "-"
    return plain(value) if key == "cost" else percent(value)


def _residuals(found: Mapping[str, Any] | None) -> Iterator[Figure]:
    """Predicted against true numbers with intervals, and the distribution of errors."""
    if found is None:
        return
    low, high, counts = (found["histogram"][key] for key in ("from", "to", "rows"))
    of = {
        key: [(band["predicted"], band[key]) for band in found["bands"]]
        for key in ("predicted", "low", "median", "high")
    }
    yield _lines(
        "True against predicted", [Trend("true: median", of["median"]), Trend("nine tenths", of["high"], 2, "7 3"),
                                   Trend("a tenth", of["low"], 2, "7 3"), Trend("exact", of["predicted"], 6, "2 3")],
        Axis("predicted", plain), Axis("true", plain), marks=[Mark(x, "", y) for x, y in of["median"]],
        said="By bands of equal numbers of rows: between the dashed lines lie eight of ten true values.",
    )  # fmt: skip
    step = (high - low) / len(counts)
    outline = [(low + (at + side) * step, float(count)) for at, count in enumerate(counts) for side in (0, 1)]
    yield _lines(
        "Residuals", [Trend("rows", outline)], Axis("predicted less true", plain),
        Axis("rows", plain, (0.0, max(1.0, *map(float, counts)))),
        marks=[Mark(0.0, "exact")] if low < 0 < high else [],
        said="Rows by how far their prediction is off; the outermost also count what lies beyond.",
    )  # fmt: skip


def _off(found: Mapping[str, Any] | None) -> str:
    """The error of most rows' predictions, in a sentence."""
    if found is None:
        return ""
    half, most = (plain(found["within"][share]) for share in ("0.5", "0.9"))
    return f"Half of the predictions are off by at most {half}, nine of ten by at most {most}."


def _lines(
    title: str, drawn: Sequence[Trend], across: Axis, up: Axis, *, said: str = "", about: str = "",
    marks: Sequence[Mark] = (), table: dict[str, Any] | None = None,
) -> Figure:  # fmt: skip
    picture = line_chart(drawn, across, up, title=title, about=about, marks=marks)
    return _figure(title, picture, said, table=table)


def _figure(title: str, picture: Html, said: str, *, wide: bool = False, table: dict[str, Any] | None = None) -> Figure:
    return {"title": title, "picture": picture, "said": said, "wide": wide, "table": table}
