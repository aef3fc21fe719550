"""Which rows count as positive: the threshold, its results, and those of other thresholds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from colonnade.common.run.numbers import plain
from colonnade.reports.decision import decision_of, decision_rows
from colonnade.reports.html.curves import Curve, colour, curves, legend
from colonnade.reports.html.frame import facts, folded, section, table
from colonnade.reports.html.markup import Html, joined, tag
from colonnade.reports.records.run import RecordedRun
from colonnade.reports.run_page.quality import class_names, confusion_table
from colonnade.reports.words import percent

_SIZE = (420, 270)
_SHARES = {"precision": "precision", "recall": "recall", "f1": "F1"}
_DASHES = ("", "7 3", "2 3")
_TENTHS = [number / 10 for number in range(11)]
_Points = Sequence[Mapping[str, Any]]


def thresholds(run: RecordedRun) -> Html:
    """The section; nothing if rows get their likeliest class."""
    if (decision := decision_of(run.summary)) is None:
        return Html()
    parts = [facts(decision_rows(run.summary))]
    of = {part: _of(run, part) for part in ("validation", "test")}
    chosen_on = "validation" if decision["rows"] and of["validation"] else "test"
    if points := _points(of[chosen_on].get("curve")):
        why = " It was chosen on these rows, so that they flatter it." if decision["by"] not in ("at", "") else ""
        said = (
            f"What every threshold comes to on the {chosen_on} rows; the upright line is the one in use.{why} "
            f"Precision is the share of the rows taken for {decision['class']!r} that are, recall the share of the "
            f"rows of {decision['class']!r} that are found, F1 the harmonic mean of the two."
        )
        parts += [
            tag("h3", "Over the threshold"),
            tag("p", said),
            _figures(points, decision),
            _numbers(points, decision),
        ]
    shown = next((part for part in ("test", "validation") if of[part].get("confusion")), "")
    parts.append(
        confusion_table(of.get(shown, {}).get("confusion"), class_names(run), f"{shown} rows at the threshold")
    )
    return section("Decision", *parts)


def _figures(points: _Points, decision: Mapping[str, Any]) -> Html:
    at = decision["threshold"]
    shares = [
        Curve(name, [(each["threshold"], each[key]) for each in points if each[key] is not None], colour(place), dash)
        for place, ((key, name), dash) in enumerate(zip(_SHARES.items(), _DASHES, strict=True))
    ]
    made = [_figure("Precision, recall and F1", shares, (0.0, 1.0), percent, at)]
    if costs := [(each["threshold"], each["cost"]) for each in points if each["cost"] is not None]:
        top = max(cost for _, cost in costs) or 1.0
        made.append(_figure("Cost of a row", [Curve("cost", costs, colour(3))], (0.0, top), plain, at))
    return joined([tag("div", *made, class_="charts"), legend(shares)])


def _figure(title: str, drawn: Sequence[Curve], span: tuple[float, float], say: Any, at: float) -> Html:
    near = "; ".join(f"{curve.name} {say(_nearest(curve, at))}" for curve in drawn if curve.points)
    picture = curves(
        drawn, say, plain, span=span, size=_SIZE, title=f"{title} over the threshold",
        about=f"at the threshold in use, {plain(at)}: {near}", mark=(at, plain(at)),
    )  # fmt: skip
    foot = tag("div", "threshold", class_="foot faint")
    said = tag("p", class_="said", aria_hidden="true")  # the page's script writes values here
    return tag("figure", tag("figcaption", title), Html(picture), foot, said)


def _nearest(curve: Curve, at: float) -> float:
    return min(curve.points, key=lambda point: abs(point[0] - at))[1]


def _numbers(points: _Points, decision: Mapping[str, Any]) -> Html:
    wanted = sorted({*_TENTHS, float(decision["threshold"])})
    columns = {"accuracy": "accuracy", **_SHARES}
    if any(each["cost"] is not None for each in points):
        columns["cost"] = "cost of a row"
    rows = []
    for at in wanted:
        here = min(points, key=lambda each: abs(each["threshold"] - at))
        name = f"{plain(at)}, in use" if at == decision["threshold"] else plain(at)
        rows.append((name, *(_cell(key, here.get(key)) for key in columns)))
    return folded("These numbers as a table", table(("threshold", *columns.values()), rows, caption="By threshold"))


def _cell(key: str, value: Any) -> str:
    if not isinstance(value, int | float):
        return "-"
    return plain(value) if key == "cost" else percent(value)


def _of(run: RecordedRun, part: str) -> Mapping[str, Any]:
    details = run.summary.get("details")
    of_part = details.get(part) if isinstance(details, Mapping) else None
    found = of_part.get("decision") if isinstance(of_part, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def _points(found: Any) -> _Points:
    """Points of the curves, if well-formed, since summaries may have been altered."""
    whole = isinstance(found, list) and len(found) > 1 and all(_is_point(each) for each in found)
    return found if whole else []


def _is_point(found: Any) -> bool:
    if not isinstance(found, Mapping) or not _within(found.get("threshold")):
        return False
    cost = found.get("cost")
    shares = all(key in found and (found[key] is None or _within(found[key])) for key in _SHARES)
    return shares and "cost" in found and (cost is None or (isinstance(cost, int | float) and 0 <= cost < float("inf")))


def _within(value: Any) -> bool:
    return isinstance(value, int | float) and 0 <= value <= 1
