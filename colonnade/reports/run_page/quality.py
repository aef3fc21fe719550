"""Cumulative gains of two classes: how soon a ranking of the rows finds those of the second."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from colonnade.common.parsing.yaml_tree import parse_yaml
from colonnade.common.run.numbers import plain
from colonnade.reports.console.summary import extra_metrics, positive_of
from colonnade.reports.html.curves import Curve, colour, curves
from colonnade.reports.html.frame import facts, folded, section, table
from colonnade.reports.html.markup import Html, joined, tag
from colonnade.reports.records.run import RecordedRun
from colonnade.reports.words import percent

_SIZE = (420, 270)
_TITLE = "Cumulative gains"
_SAID = (
    "Rows are ranked by the probability of {}, the likeliest first. The curve says which share of that "
    "class's rows the first rows have; the dotted line is an order by chance, the dashed one the best possible."
)


def gains_chart(points: Any, confusion: Any, positive: str | None = None) -> Html:
    """The curve, and the gain and lift of every decile; nothing if the summary has none.

    Args:
        points: `details.PART.gains` of a summary: shares of all `rows`, and of the second class's that were `found`.
        confusion: rows by true and then predicted class, which give the best possible curve.
        positive: name of the second class, if known.
    """
    if not (isinstance(points, list) and len(points) > 1 and all(_is_point(each) for each in points)):
        return Html()
    measured = [(each["rows"], each["found"]) for each in points]
    drawn = [Curve("model", measured, colour(0)), Curve("by chance", [(0.0, 0.0), (1.0, 1.0)], colour(7), "2 3")]
    if (share := _positive(confusion)) is not None:
        drawn.append(Curve("best possible", [(0.0, 0.0), (share, 1.0), (1.0, 1.0)], colour(2), "7 3"))
    which = "the second class" if positive is None else f"the positive class, {positive!r}"
    about = "; ".join(f"the first {percent(rows)} of the rows have {percent(found)}" for rows, found in measured[2::4])
    picture = curves(drawn, percent, percent, span=(0.0, 1.0), size=_SIZE, title=_TITLE, about=about)
    foot = tag("div", "share of the rows", class_="foot faint")
    deciles = [
        (percent(rows), percent(found), f"{found / rows:.2f}") for rows, found in measured if round(10 * rows, 6) >= 1
    ]
    numbers = table(("first rows", "positive class's rows found", "lift"), deciles, caption="Gain and lift")
    said = tag("p", class_="said", aria_hidden="true")  # the page's script writes values here
    parts = (tag("figcaption", "Rows found against rows taken"), Html(picture), foot, said)
    figure = tag("figure", *parts, style=f"max-width:{_SIZE[0]}px")
    return joined(
        [tag("h3", _TITLE), tag("p", _SAID.format(which)), figure, folded("Gain and lift as a table", numbers)]
    )


def _is_point(found: Any) -> bool:
    """Validates a point, since summaries may have been altered."""
    if not isinstance(found, Mapping):
        return False
    return all(isinstance(found.get(key), int | float) and 0 <= found[key] <= 1 for key in ("rows", "found"))


def _positive(confusion: Any) -> float | None:
    if not (isinstance(confusion, list) and len(confusion) == 2 and all(isinstance(line, list) for line in confusion)):
        return None
    counts = [sum(number for number in line if isinstance(number, int)) for line in confusion]
    return counts[1] / sum(counts) if all(counts) else None


_METRICS = {
    "auc": "AUC", "average_precision": "average precision", "balanced_accuracy": "balanced accuracy",
    "f1": "F1 (mean of the classes)", "log_loss": "log loss", "brier": "Brier score",
    "ece": "expected calibration error", "ks": "KS statistic", "lift": "lift of the top decile",
    "gain": "positive class's rows in the top decile", "baseline_accuracy": "accuracy of always the commonest class",
    "rmse": "RMSE", "mae": "MAE", "r2": "R2", "baseline_rmse": "RMSE of always the mean",
}  # fmt: skip
_PALEST = 0.15  # least share with a visible colour
_PARTS = {"test": "test", "validation": "val"}
_MOST, _FEW = 30, 12  # most classes in a readable table, and in one that is not collapsed


def quality(run: RecordedRun) -> Html:
    """All findings of the last evaluation on the test rows, else on the validation rows."""
    metrics, details = run.summary["metrics"], run.summary.get("details") or {}
    for part, prefix in _PARTS.items():
        known = {name: metrics.get(f"{prefix}_{key}") for key, name in _METRICS.items()}
        rows = [(name, plain(value)) for name, value in known.items() if isinstance(value, int | float)]
        rows += [
            (key.removeprefix(f"{prefix}_").replace("_", " "), plain(value))
            for key, _, value in extra_metrics(metrics)
            if key.startswith(f"{prefix}_")
        ]
        if rows:
            positive = positive_of(run.summary)
            parts = [facts([*rows, *([] if positive is None else [("positive class", positive)])])]
            if isinstance(found := details.get(part), Mapping):
                parts += [
                    confusion_table(found.get("confusion"), class_names(run)),
                    gains_chart(found.get("gains"), found.get("confusion"), positive),
                    _reliability(found.get("reliability")),
                ]
            return section(f"Metrics on the {part} rows", *parts)
    return Html()


def confusion_table(counts: Any, names: Sequence[str], of: str = "") -> Html:
    """Rows by true and predicted class, as a table; nothing for many classes, or if malformed.

    Args:
        counts: rows by true and then predicted class.
        names: of the classes, if known.
        of: for the heading: the rows and how they were decided.
    """
    if not isinstance(counts, list) or not 0 < len(counts) <= _MOST:
        return Html()
    named = [names[at] if len(names) == len(counts) else str(at) for at in range(len(counts))]
    if not all(isinstance(line, list) for line in counts):
        return Html()
    rows = [(f"true {name}", *_shaded(at, line)) for at, (name, line) in enumerate(zip(named, counts, strict=True))]
    heads = ("true class", *(f"predicted {name}" for name in named))
    caption = "Rows by true and predicted class; the stronger the colour, the more of the class's rows"
    shown = table(heads, rows, caption=caption)
    title = f"Confusion matrix{of and f': {of}'}"
    return folded(title, shown) if len(counts) > _FEW else joined([tag("h3", title), shown])


def _shaded(at: int, line: Sequence[Any]) -> list[Html]:
    total = sum(number for number in line if isinstance(number, int)) or 1
    shares = [max(number / total, _PALEST) if isinstance(number, int) and number else 0.0 for number in line]
    return [
        tag("span", number, class_="right" if place == at else "wrong", style=f"--share:{100 * share:.0f}%")
        for place, (number, share) in enumerate(zip(line, shares, strict=True))
    ]


def _reliability(bins: Any) -> Html:
    whole = [each for each in bins if _is_bin(each)] if isinstance(bins, list) else []
    if not whole:
        return Html()
    rows = [
        (f"{each['from']:g} to {each['to']:g}", each["rows"], percent(each["confidence"]), percent(each["share"]))
        for each in whole
    ]
    said = "Probabilities are calibrated where the last two columns agree."
    shown = table(
        ("probability", "rows", "mean probability", "accuracy"),
        rows,
        caption="Predicted probability and share of right predictions",
    )
    return folded("Calibration", joined([tag("p", said), shown]))


def _is_bin(found: Any) -> bool:
    """Validates a bin, since summaries may have been altered."""
    keys = ("from", "to", "rows", "confidence", "share")
    return isinstance(found, Mapping) and all(isinstance(found.get(key), int | float) for key in keys)


def class_names(run: RecordedRun) -> Sequence[str]:
    try:
        classes = (parse_yaml(run.config) or {})["federation"]["classes"]
    except (yaml.YAMLError, KeyError, TypeError):
        return ()
    return [str(name) for name in classes] if isinstance(classes, list) else ()
