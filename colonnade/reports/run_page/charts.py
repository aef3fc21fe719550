"""Quality and loss against rounds, seconds and bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from colonnade.common.text import plain
from colonnade.reports.console.summary import best_of_stopped
from colonnade.reports.html.charts import Axis, Mark, Trend, line_chart, rounded_span, running_mean
from colonnade.reports.html.page import Html, fragment
from colonnade.reports.records.run import EVALUATED, Measured, RecordedRun
from colonnade.reports.words import amount, counted, percent, seconds

TEMPLATES = Path(__file__).parent / "templates"

_SAID: dict[str, tuple[str, Callable[[float], str]]] = {
    "auc": ("AUC", plain), "balanced_accuracy": ("Balanced accuracy", percent), "accuracy": ("Accuracy", percent),
    "rmse": ("RMSE", plain), "loss": ("Loss", plain),
}  # fmt: skip
_SHARES = ("auc", "balanced_accuracy", "accuracy")  # at most 1
_PARTS = {"val": "validation", "test": "test", "train": "training"}
_POINTS = 160  # of a curve: more than a chart of this width resolves
_SMOOTHED = 100  # values from which on a running mean is drawn
_ROWS = 100  # of a table


@dataclass(frozen=True)
class _Way:
    key: str
    name: str
    take: Callable[[Measured], float]
    say: Callable[[float], str]


_WAYS = (
    _Way("round", "rounds", lambda at: at.round, lambda x: f"{x:.10g}"),
    _Way("seconds", "seconds", lambda at: at.seconds, seconds),
    _Way("bytes", "bytes on the wire", lambda at: at.bytes, amount),
)


@dataclass(frozen=True)
class _Line:
    name: str
    measured: Sequence[Measured]
    raw: Sequence[Measured]
    colour: int


def charts(run: RecordedRun) -> Html:
    """Charts of a run, with its numbers as a table."""
    drawn = {key: found for key in _SAID if (found := _lines(run, key))}
    measured = [at for lines in drawn.values() for line in lines for at in line.measured]
    ways = [way for way in _WAYS if way.key == "round" or any(way.take(at) > 0 for at in measured)]
    values = {
        "ways": [{"key": way.key, "name": _named(way, run)} for way in ways],
        "figures": [_figure(run, key, lines, ways) for key, lines in drawn.items()],
        "notes": list(_notes(run)),
        "table": _numbers(run),
    }
    return fragment("curves.html", values, beside=TEMPLATES)


def _named(way: _Way, run: RecordedRun) -> str:
    return "bytes of tensors" if run.virtual and way.key == "bytes" else way.name


def _lines(run: RecordedRun, what: str) -> list[_Line]:
    of_parts = {part: run.trace.series.get(f"{part}_{what}") for part in _PARTS}
    return [_smoothed(_PARTS[part], found, colour) for colour, (part, found) in enumerate(of_parts.items(), 1) if found]


def _smoothed(name: str, measured: list[Measured], colour: int) -> _Line:
    """A long, noisy curve as its running mean, with the measured values behind it."""
    if len(measured) < _SMOOTHED or name != _PARTS["train"]:
        return _Line(name, thin(measured, _value), (), colour)
    means = running_mean([(0.0, at.value) for at in measured], max(10, len(measured) // 20))
    mean = [Measured(at.round, at.seconds, at.bytes, y) for at, (_, y) in zip(measured, means, strict=True)]
    step = max(1, len(mean) // _POINTS)
    return _Line(f"{name}, mean", [*mean[::step], mean[-1]], thin(measured, _value), colour)


def _value(at: Measured) -> float:
    return at.value


def _figure(run: RecordedRun, key: str, lines: Sequence[_Line], ways: Sequence[_Way]) -> dict[str, Any]:
    title, say = _SAID[key]
    span = _span([at.value for line in lines for at in (*line.measured, *line.raw)], share=key in _SHARES)
    about = "; ".join(_said(line, say) for line in lines)
    pictures = []
    for way in ways:
        trends = [
            Trend(line.name, [(way.take(at), at.value) for at in line.measured], line.colour,
                  raw=[(way.take(at), at.value) for at in line.raw])
            for line in lines
        ]  # fmt: skip
        picture = line_chart(
            trends, Axis(_named(way, run), way.say, _reach(lines, way)), Axis("", say, span),
            title=f"{title} against {_named(way, run)}", about=about, marks=_marks(run, key, way),
        )  # fmt: skip
        pictures.append({"key": way.key, "chart": picture})
    alone = f", {lines[0].name}" if len(lines) == 1 else ""
    return {"title": f"{title}{alone}", "pictures": pictures}


def _marks(run: RecordedRun, key: str, way: _Way) -> list[Mark]:
    """The best round, and the round of an early stop."""
    best, marks = best_of_stopped(run.summary), []
    for at in run.trace.series.get(f"val_{key}", []):
        if best is not None and at.round == best["round"]:
            marks.append(Mark(way.take(at), f"best: round {at.round}", at.value))
    if run.summary.get("stopped") and (curve := run.trace.series.get(f"val_{key}")):
        marks.append(Mark(way.take(curve[-1]), "stopped"))
    return marks


def _said(line: _Line, say: Callable[[float], str]) -> str:
    first, last = line.measured[0], line.measured[-1]
    begin = "" if first is last else f"{say(first.value)} in round {first.round}, "
    return f"{line.name}: {begin}{say(last.value)} in round {last.round}"


def _reach(lines: Sequence[_Line], way: _Way) -> tuple[float, float]:
    """From the beginning to the last value."""
    return 0.0, max(way.take(at) for line in lines for at in (*line.measured, *line.raw)) or 1.0


def _span(values: Sequence[float], *, share: bool) -> tuple[float, float]:
    """Rounds the range outwards; a share stays between 0 and 1, a loss or an error begins at 0.

    A tenth at least of the shares is shown, so that chance does not look like a slope.
    """
    if not share:
        return rounded_span([0.0, *values])
    low, high = rounded_span([*values, max(0.0, min(max(values) - 0.1, *values))])
    return max(low, 0.0), min(high, 1.0)


def _notes(run: RecordedRun) -> Iterator[str]:
    if any(len(values) >= _SMOOTHED for values in run.trace.series.values()):
        yield "Of long curves every stretch is drawn by its lowest and its highest value, or by its mean."
    if run.trace.lost:
        yield f"{counted(run.trace.lost, 'value')} were no number and are left out."
    if run.clock.starts > 1:
        away = seconds(run.clock.paused)
        yield f"The run was started {run.clock.starts} times; the {away} between are not in its seconds."
    if run.virtual:
        yield "The run was simulated: seconds are those of the delays alone, bytes those of the tensors."


def _numbers(run: RecordedRun) -> dict[str, Any] | None:
    series = run.trace.series
    keys = [key for key in EVALUATED if series[key]] or ["train_loss"]
    kept = {at.round: at for key in keys for at in thin(series[key], _value, _ROWS)}
    shown = [key for key in (*EVALUATED, "train_loss") if series[key]]
    values = {key: {at.round: at.value for at in series[key]} for key in shown}
    rows = [
        [str(round), seconds(at.seconds), amount(at.bytes) if at.bytes else "-",
         *(_cell(key, values[key].get(round)) for key in shown)]
        for round, at in sorted(kept.items())
    ]  # fmt: skip
    heads = ["round", "time", "tensors" if run.virtual else "on the wire", *(_head(key) for key in shown)]
    return {"heads": heads, "rows": rows} if rows else None


def _head(key: str) -> str:
    part, _, metric = key.partition("_")
    name = _SAID[metric][0]
    return f"{_PARTS[part]} {name if name.isupper() else name.lower()}"


def _cell(key: str, value: float | None) -> str:
    return "-" if value is None else _SAID[key.partition("_")[2]][1](value)


T = TypeVar("T")


def thin(points: Sequence[T], value: Callable[[T], float], most: int = _POINTS) -> list[T]:
    """Returns at most `most` points (at least 4) in order: the ends, and the lowest and highest of every stretch.

    Peaks of a single round survive, and no point is invented. The result looks like the whole curve, but has other
    means and densities.
    """
    if len(points) <= most:
        return list(points)
    stretches, last = (most - 2) // 2, len(points) - 1
    kept = {0, last}
    for number in range(stretches):
        inside = range(1 + number * (last - 1) // stretches, 1 + (number + 1) * (last - 1) // stretches)
        kept |= {choose(inside, key=lambda at: value(points[at])) for choose in (min, max)}
    return [points[at] for at in sorted(kept)]
