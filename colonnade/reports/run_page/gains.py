"""Cumulative gains of two classes: how soon a ranking of the rows finds those of the second."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from colonnade.reports.html.curves import Curve, curves
from colonnade.reports.html.frame import folded, table
from colonnade.reports.html.markup import Html, joined, tag
from colonnade.reports.html.svg import colour
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
    """Share of the rows in the second class."""
    if not (isinstance(confusion, list) and len(confusion) == 2 and all(isinstance(line, list) for line in confusion)):
        return None
    counts = [sum(number for number in line if isinstance(number, int)) for line in confusion]
    return counts[1] / sum(counts) if all(counts) else None
