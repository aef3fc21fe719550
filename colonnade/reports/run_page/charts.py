"""Accuracy and loss against rounds, seconds and bytes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from colonnade.common.run.numbers import plain
from colonnade.reports.html.curves import Curve, colour, curves, legend, ticks
from colonnade.reports.html.frame import folded, section, table
from colonnade.reports.html.markup import Html, joined, tag
from colonnade.reports.records.run import RecordedRun
from colonnade.reports.records.trace import EVALUATED, Measured
from colonnade.reports.words import amount, counted, listed, percent, seconds

_SIZE = (420, 270)
_SAID: dict[str, Callable[[float], str]] = {
    "AUC": plain, "Balanced accuracy": percent, "Accuracy": percent, "RMSE": plain, "Loss": plain
}  # fmt: skip
_SHARES = ("AUC", "Balanced accuracy", "Accuracy")  # at most 1
_ALL = 24_000  # points of all curves of a page together
_PARTS = {"val": ("validation", ""), "test": ("test", "7 3"), "train": ("training", "2 3")}


@dataclass(frozen=True)
class _Axis:
    key: str
    name: str
    take: Callable[[Measured], float]
    say: Callable[[float], str]


_AXES = (
    _Axis("round", "rounds", lambda at: at.round, lambda x: f"{x:.10g}"),
    _Axis("seconds", "seconds", lambda at: at.seconds, seconds),
    _Axis("bytes", "bytes on the wire", lambda at: at.bytes, amount),
)


@dataclass(frozen=True)
class _Line:
    name: str
    measured: list[Measured]
    stroke: str
    dash: str


def charts(runs: Mapping[str, RecordedRun]) -> Html:
    drawn = [(title, say, _lines(runs, title.lower().replace(" ", "_"))) for title, say in _SAID.items()]
    if not (lines := [line for _, _, of_picture in drawn for line in of_picture]):
        return section("Accuracy and loss", tag("p", "Nothing was measured yet."))
    named = [replace(axis, name="bytes of tensors") if axis.key == "bytes" else axis for axis in _AXES]
    all_axes = named if all(run.virtual for run in runs.values()) else _AXES
    axes = [axis for axis in all_axes if any(axis.take(at) > 0 for line in lines for at in line.measured)]
    figures = [_figure(title, say, of_picture, axes or _AXES[:1]) for title, say, of_picture in drawn if of_picture]
    named_lines = [Curve(line.name, (), line.stroke, line.dash) for line in lines]
    return section(
        "Accuracy and loss", _switch(axes), tag("div", *figures, class_="charts"), legend(named_lines), _notes(runs),
        joined([_numbers(name, run, alone=len(runs) == 1) for name, run in runs.items()]),
    )  # fmt: skip


def _lines(runs: Mapping[str, RecordedRun], what: str) -> list[_Line]:
    """One colour per part for one run; for several, one per run, without training losses, which would hide the rest."""
    alone, most = len(runs) == 1, max(20, min(MOST, _ALL // (6 * len(runs))))
    lines = []
    for index, (name, run) in enumerate(runs.items()):
        for number, (part, (word, dash)) in enumerate(_PARTS.items()):
            found = run.trace.series.get(f"{part}_{what}", [])
            if found and (alone or part != "train"):
                said, stroke = (word, colour(number)) if alone else (f"{name}, {word}", colour(index))
                lines.append(_Line(said, thin(found, lambda at: at.value, most), stroke, dash))
    return lines


def _figure(title: str, say: Callable[[float], str], lines: list[_Line], axes: Sequence[_Axis]) -> Html:
    span = _span([at.value for line in lines for at in line.measured], accuracy=title in _SHARES)
    shown = []
    for number, axis in enumerate(axes):
        drawn = [Curve(line.name, [(axis.take(at), at.value) for at in line.measured], line.stroke, line.dash)
                 for line in lines]  # fmt: skip
        about = "; ".join(_said(line, say) for line in lines[:12])
        picture = curves(drawn, say, axis.say, span=span, size=_SIZE, title=f"{title} against {axis.name}", about=about)
        foot = tag("div", axis.name, class_="foot faint")
        shown.append(tag("div", Html(picture), foot, data_axis=axis.key, hidden=number > 0))
    said = tag("p", class_="said", aria_hidden="true")
    return tag("figure", tag("figcaption", title), *shown, said)


def _said(line: _Line, say: Callable[[float], str]) -> str:
    first, last = line.measured[0], line.measured[-1]
    begin = "" if first is last else f"{say(first.value)} in round {first.round}, "
    return f"{line.name}: {begin}{say(last.value)} in round {last.round}"


def _span(values: Sequence[float], *, accuracy: bool) -> tuple[float, float]:
    """Rounds the range outwards; an accuracy stays at most 1, a loss at least 0."""
    low, high = (min(values), max(values)) if accuracy else (min(0.0, *values), max(values))
    if high - low < 1e-9:
        low, high = low - 0.05, high + 0.05
    marks = ticks(low, high)
    step = marks[1] - marks[0] if len(marks) > 1 else high - low
    below, above = step * math.floor(low / step + 1e-9), step * math.ceil(high / step - 1e-9)
    low, high = min(low, below), max(high, above)  # rounding must not exclude a point
    return (max(low, 0.0), min(high, 1.0)) if accuracy else (low, high)


def _switch(axes: Sequence[_Axis]) -> Html:
    if len(axes) < 2:
        return Html()
    choices = [
        tag("label", tag("input", type="radio", name="axis", value=axis.key, checked=number == 0, autocomplete="off"),
            f" {axis.name}") for number, axis in enumerate(axes)
    ]  # fmt: skip
    return tag("fieldset", tag("legend", "Against"), *choices, class_="axis", hidden=True)


def _notes(runs: Mapping[str, RecordedRun]) -> Html:
    said = []
    if thinned := [name for name, run in runs.items() if max(map(len, run.trace.series.values())) > MOST]:
        said.append(f"Of long curves ({listed(thinned)}) every stretch is drawn by its lowest and its highest value.")
    for name, run in runs.items():
        if run.trace.lost:
            said.append(f"{name}: {counted(run.trace.lost, 'value')} were no number and are left out.")
        if run.clock.starts > 1:
            away = seconds(run.clock.paused)
            said.append(f"{name} was started {run.clock.starts} times; the {away} between are not in its seconds.")
        if run.virtual:
            said.append(
                f"{name} was simulated: its seconds are those of the delays alone, its bytes those of the tensors."
            )
    said.append("Seconds are counted from the server's first event. A dot or a ring is a curve of one point.")
    return tag("p", " ".join(said), class_="faint")


def _numbers(name: str, run: RecordedRun, *, alone: bool) -> Html:
    series = {key: thin(run.trace.series[key], lambda at: at.value, 200) for key in EVALUATED}
    if not any(series.values()):
        series = {"train_loss": thin(run.trace.series["train_loss"], lambda at: at.value, 200)}
    places = {at.round: at for values in series.values() for at in values}
    values = {key: {at.round: at.value for at in found} for key, found in run.trace.series.items()}
    heads = {"val_auc": "validation AUC", "test_auc": "test AUC",
             "val_balanced_accuracy": "validation balanced accuracy",
             "test_balanced_accuracy": "test balanced accuracy",
             "val_accuracy": "validation accuracy", "test_accuracy": "test accuracy", "val_rmse": "validation RMSE",
             "test_rmse": "test RMSE", "train_loss": "training loss",
             "val_loss": "validation loss", "test_loss": "test loss"}  # fmt: skip
    shown = {key: head for key, head in heads.items() if values[key]}
    rows = [
        [str(round), seconds(at.seconds), amount(at.bytes) if at.bytes else "-",
         *(_value(key, values[key].get(round)) for key in shown)]
        for round, at in sorted(places.items())
    ]  # fmt: skip
    if not rows:
        return Html()
    title = "These numbers as a table" if alone else f"{name} as a table"
    return folded(
        title,
        table(
            ["round", "time", "tensors" if run.virtual else "on the wire", *shown.values()],
            rows,
            caption=f"{name}, by round",
        ),
    )


def _value(key: str, value: float | None) -> str:
    if value is None:
        return "-"
    return percent(value) if key.endswith("accuracy") else plain(value)


T = TypeVar("T")
MOST = 500  # more points per curve than a screen resolves


def thin(points: Sequence[T], value: Callable[[T], float], most: int = MOST) -> list[T]:
    """Returns at most `most` points (at least 4) in order: the ends, and the lowest and highest of every stretch.

    Peaks of a single round survive, and no point is made up. The result looks like the whole curve, but means and
    densities can no longer be read off it.
    """
    if len(points) <= most:
        return list(points)
    stretches, last = (most - 2) // 2, len(points) - 1
    kept = {0, last}
    for number in range(stretches):
        inside = range(1 + number * (last - 1) // stretches, 1 + (number + 1) * (last - 1) // stretches)
        kept |= {choose(inside, key=lambda at: value(points[at])) for choose in (min, max)}
    return [points[at] for at in sorted(kept)]
