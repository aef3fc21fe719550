"""Presence, absence and missed rounds: one strip per party."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from colonnade.reports.html.frame import section, table
from colonnade.reports.html.markup import Html, joined, tag
from colonnade.reports.records.run import RecordedRun
from colonnade.reports.words import counted, listed, seconds

_SLICES, _HEIGHT = 240, 10  # of a strip, in its own units
_LEVELS = 8  # opacities of partly missed slices

Interval = tuple[float, float]


@dataclass(frozen=True)
class _Presence:
    here: list[Interval]
    away: list[Interval]
    missed: list[Interval]
    awaited: list[Interval]
    late: list[float]


def presence(run: RecordedRun) -> Html:
    """The strips, with counts; nothing for a run that ended too early."""
    end, missing, late = run.clock.end, run.summary.get("missing") or {}, run.summary.get("late") or {}
    if not end or not run.parties:
        return Html()
    slowest, times, waits = Counter(run.trace.slowest.values()), _presences(run), _waits(run)
    rows = [
        (name, _strip(name, times[name], end, missing.get(name, 0)), missing.get(name, 0), late.get(name, 0),
         slowest[name], seconds(waits[name]))
        for name in run.parties
    ]  # fmt: skip
    heads = ("party", "when", "missed rounds", "late answers", "last to answer", "waited for it")
    caption = f"From left to right {seconds(end)}, {counted(len(run.trace.ends), 'round')}"
    note = (
        "Last to answer: the rounds in which this party's answer was the last of those that came in time. Waited for "
        "it: the seconds in those rounds from the first answer to its own. A strip shows those that were most of a "
        "round."
    )
    return section(
        "Parties over time", tag("p", stragglers(run)), _legend(times.values()),
        table(heads, rows, words=(0, 1), caption=caption), tag("p", note, class_="faint"),
    )  # fmt: skip


def stragglers(run: RecordedRun) -> str:
    rounds, missing = counted(run.summary["rounds"], "round"), run.summary.get("missing") or {}
    behind = [f"{name} ({missing[name]})" for name in sorted(missing, key=lambda name: -missing[name]) if missing[name]]
    if not behind:
        return f"Nobody missed any of the {rounds}."
    return f"{len(behind)} of {len(run.parties)} parties missed some of the {rounds}: {listed(behind, 5)}."


def _waits(run: RecordedRun) -> dict[str, float]:
    """Seconds from the first answer to a party's own, over rounds in which its own was the last."""
    waits: dict[str, float] = defaultdict(float)
    for round, name in run.trace.slowest.items():
        waits[name] += run.trace.lags[round]
    return waits


def _awaited(run: RecordedRun, name: str) -> list[Interval]:
    """The rounds that spent more than half of their time waiting for a party."""
    ends, slowest = run.trace.ends, run.trace.slowest
    mine = [(ends[round - 1], ends[round], run.trace.lags[round])
            for round in ends if slowest.get(round) == name and round - 1 in ends]  # fmt: skip
    return [(begin, end) for begin, end, lag in mine if lag > (end - begin) / 2]


def cover(intervals: Iterable[Interval], end: float, slices: int = _SLICES) -> list[float]:
    """Covered share of every slice of a strip, 0 to 1.

    Args:
        intervals: disjoint, in seconds.
        end: of the strip, in seconds.
        slices: number of equal slices.
    """
    shares = [0.0] * slices
    for begin, stop in intervals:
        low, high = begin / end * slices, stop / end * slices
        for number in range(max(0, int(low)), min(slices, int(high) + 1)):
            shares[number] += max(0.0, min(high, number + 1) - max(low, number))
    return [min(share, 1.0) for share in shares]


def _presences(run: RecordedRun) -> dict[str, _Presence]:
    late: dict[str, list[float]] = defaultdict(list)
    for event in run.events:
        if event["kind"] == "late":
            late[str(event.get("party"))].append(run.clock.seconds(event["time"]))
    timeline = run.timeline()
    return {name: _presence(run, timeline.get(name, []), _awaited(run, name), late[name]) for name in run.parties}


def _presence(
    run: RecordedRun, spans: Sequence[Mapping[str, Any]], awaited: list[Interval], late: list[float]
) -> _Presence:
    end = run.clock.end
    by_what: dict[str, list[Interval]] = {"here": [(0.0, end)] if run.virtual else [], "away": []}
    missed = []
    for span in spans:
        if span["what"] == "missing":
            first, last = span["rounds"]
            stop = run.trace.ends.get(last, run.since_first(span["to"]))
            missed.append((run.trace.ends.get(first - 1, min(stop, run.since_first(span["from"]))), stop))
        else:
            stop = end if span["to"] is None else run.since_first(span["to"])
            by_what[span["what"]].append((run.since_first(span["from"]), stop))
    return _Presence(by_what["here"], by_what["away"], missed, awaited, late)


def _strip(name: str, times: _Presence, end: float, missing: int) -> Html:
    """A picture that fills the width; partly missed slices are paler."""
    parts = [_bar(interval, end, "here") for interval in times.here]
    parts += _shaded(times.missed, end, "missed", _HEIGHT)
    parts += _shaded(times.awaited, end, "awaited", _HEIGHT // 2)
    parts += [_bar(interval, end, "away") for interval in times.away]  # drawn over the rounds missed by it
    ticks = sorted({min(_SLICES - 1, int(at / end * _SLICES)) for at in times.late})
    if ticks:
        shape = "".join(f"M{at} {_HEIGHT - 3}h1v3h-1z" for at in ticks)
        parts.append(f'<path class="late" d="{shape}"/>')
    said = joined([tag("title", f"{name} over time"), tag("desc", _said(times, missing))])
    return Html(
        f'<svg class="strip" viewBox="0 0 {_SLICES} {_HEIGHT}" preserveAspectRatio="none" role="img">'
        f"{said}{''.join(parts)}</svg>"
    )


def _shaded(intervals: Sequence[Interval], end: float, what: str, height: int) -> list[str]:
    levels: dict[int, list[int]] = defaultdict(list)
    for number, share in enumerate(cover(intervals, end)):
        if share > 0:
            levels[max(1, round(share * _LEVELS))].append(number)
    shapes = {level: "".join(f"M{number} 0h1v{height}h-1z" for number in levels[level]) for level in sorted(levels)}
    return [f'<path class="{what}" fill-opacity="{level / _LEVELS}" d="{shape}"/>' for level, shape in shapes.items()]


def _bar(interval: Interval, end: float, what: str) -> str:
    low, high = (edge / end * _SLICES for edge in interval)
    return f'<rect class="{what}" x="{low:.1f}" width="{max(high - low, 0.5):.1f}" height="{_HEIGHT}"/>'


def _said(times: _Presence, missing: int) -> str:
    words = [f"here {seconds(begin)} to {seconds(stop)}" for begin, stop in times.here[:5]]
    words += [f"away {seconds(begin)} to {seconds(stop)}" for begin, stop in times.away[:5]]
    words += [counted(missing, "round") + " missed"] if missing else []
    words += [counted(len(times.awaited), "round") + " spent mostly in waiting for it"] if times.awaited else []
    return ", ".join([*words, *([f"{len(times.late)} answers late"] if times.late else [])]) or "never here"


def _legend(presences: Iterable[_Presence]) -> Html:
    meanings = {"here": "here", "away": "away", "missed": "missed the round",
                "awaited": "the others waited for it", "late": "an answer came too late"}  # fmt: skip
    items, everyone = [], list(presences)
    for what, words in meanings.items():
        if any(getattr(times, what) for times in everyone):
            square = f'<svg viewBox="0 0 26 10" aria-hidden="true"><rect class="{what}" width="26" height="10"/></svg>'
            items.append(tag("li", Html(square), words))
    return tag("ul", *items, class_="legend")
