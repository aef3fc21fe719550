"""Presence, absence, missed rounds and restarts: one strip per party."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from colonnade.reports.html.page import Html, written
from colonnade.reports.records.run import RecordedRun
from colonnade.reports.words import counted, listed, seconds

MOST = 24
"""Parties with a strip; of more those that were behind most."""

_SLICES, _HEIGHT = 120, 10  # of a strip, in its own units
_LEVELS = 4  # opacities of partly missed slices
_MEANINGS = {
    "here": "here", "away": "away", "missed": "missed the round", "awaited": "the others waited for it",
    "late": "an answer came too late", "again": "came back",
}  # fmt: skip

Interval = tuple[float, float]


@dataclass(frozen=True)
class _Presence:
    here: list[Interval]
    away: list[Interval]
    missed: list[Interval]
    awaited: list[Interval]
    late: list[float]

    @property
    def again(self) -> list[float]:
        """Seconds at which the party came back."""
        return [begin for begin, _ in self.here[1:]]


def presence(run: RecordedRun) -> dict[str, Any] | None:
    """Strips, and counts of every party; None for a run that ended too early."""
    end, missing, late = run.clock.end, run.summary.get("missing") or {}, run.summary.get("late") or {}
    if not end or not run.parties:
        return None
    slowest, waits, times = Counter(run.trace.slowest.values()), _waits(run), _presences(run)
    worst = sorted(run.parties, key=lambda name: (-len(times[name].away), -missing.get(name, 0), -waits[name]))
    shown = [name for name in run.parties if name in set(worst[:MOST])]
    rows = [
        (name, missing.get(name, 0), late.get(name, 0), slowest[name], seconds(waits[name]), len(times[name].again))
        for name in run.parties
    ]
    return {
        "said": [stragglers(run), *_waited(run, waits), *_went(times)],
        "strips": [(name, _strip(name, times[name], end, missed), _short(times[name], missed))
                   for name in shown for missed in [missing.get(name, 0)]],
        "hidden": len(run.parties) - len(shown),
        "meanings": [(what, words) for what, words in _MEANINGS.items()
                     if any(getattr(times[name], what) for name in shown)],
        "end": f"{seconds(end)}, {counted(len(run.trace.ends), 'round')}",
        "heads": ("party", "missed rounds", "late answers", "last to answer", "waited for it", "came back"),
        "rows": rows,
    }  # fmt: skip


def stragglers(run: RecordedRun) -> str:
    """The parties that missed rounds, in a sentence."""
    rounds, missing = counted(run.summary["rounds"], "round"), run.summary.get("missing") or {}
    behind = [f"{name} ({missing[name]})" for name in sorted(missing, key=lambda name: -missing[name]) if missing[name]]
    if not behind:
        return f"Nobody missed any of the {rounds}."
    return f"{len(behind)} of {len(run.parties)} parties missed some of the {rounds}: {listed(behind, 5)}."


def _waited(run: RecordedRun, waits: Mapping[str, float]) -> Iterable[str]:
    """Names the slowest party if waiting for it takes a good part of the time."""
    name = max(run.parties, key=lambda party: waits[party])
    if waits[name] > run.clock.end / 20:
        yield f"Most was waited for {name}: {seconds(waits[name])} of {seconds(run.clock.end)}."


def _went(times: Mapping[str, _Presence]) -> Iterable[str]:
    back = [f"{name} ({len(own.again)})" for name, own in times.items() if own.again]
    if back:
        yield f"Came back after an absence: {listed(back, 5)}."


def _short(times: _Presence, missing: int) -> str:
    said = [counted(len(times.again), "return")] if times.again else ["away"] if times.away else []
    return ", ".join([*said, *([f"{missing} missed"] if missing else [])]) or "always here"


def _waits(run: RecordedRun) -> dict[str, float]:
    """Seconds from the first answer to a party's own, over rounds in which it was the last."""
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
        end: the strip's, in seconds.
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
    """A picture that fills the width; partly missed slices are paler, and a restart is an upright line."""
    parts = [_bar(interval, end, "here") for interval in times.here]
    parts += _shaded(times.missed, end, "missed", _HEIGHT)
    parts += _shaded(times.awaited, end, "awaited", _HEIGHT // 2)
    parts += [_bar(interval, end, "away") for interval in times.away]  # drawn over the rounds missed by it
    for what, moments, shape in (("late", times.late, f"{_HEIGHT - 3}h1v3h-1z"), ("again", times.again, "0h1v10h-1z")):
        if ticks := sorted({min(_SLICES - 1, int(at / end * _SLICES)) for at in moments}):
            parts.append(f'<path class="{what}" d="{"".join(f"M{at} {shape}" for at in ticks)}"/>')
    said = f"<title>{written(name)} over time</title><desc>{written(_said(times, missing))}</desc>"
    return Html(
        f'<svg class="strip" viewBox="0 0 {_SLICES} {_HEIGHT}" preserveAspectRatio="none" role="img">'
        f"{said}{''.join(parts)}</svg>"
    )


def _shaded(intervals: Sequence[Interval], end: float, what: str, height: int) -> list[str]:
    """Slices in a few opacities; neighbours of equal opacity are one shape."""
    shapes: dict[int, str] = defaultdict(str)
    levels = [max(1, round(share * _LEVELS)) if share > 0 else 0 for share in cover(intervals, end)]
    begin = 0
    for at in range(1, _SLICES + 1):
        if at == _SLICES or levels[at] != levels[begin]:
            shapes[levels[begin]] += f"M{begin} 0h{at - begin}v{height}H{begin}z"
            begin = at
    return [f'<path class="{what}" fill-opacity="{level / _LEVELS}" d="{shapes[level]}"/>'
            for level in sorted(shapes) if level]  # fmt: skip


def _bar(interval: Interval, end: float, what: str) -> str:
    low, high = (edge / end * _SLICES for edge in interval)
    return f'<rect class="{what}" x="{low:.1f}" width="{max(high - low, 0.5):.1f}" height="{_HEIGHT}"/>'


def _said(times: _Presence, missing: int) -> str:
    words = [f"here {seconds(begin)} to {seconds(stop)}" for begin, stop in times.here[:5]]
    words += [f"away {seconds(begin)} to {seconds(stop)}" for begin, stop in times.away[:5]]
    words += [counted(missing, "round") + " missed"] if missing else []
    words += [counted(len(times.awaited), "round") + " spent mostly in waiting for it"] if times.awaited else []
    return ", ".join([*words, *([f"{len(times.late)} answers late"] if times.late else [])]) or "never here"
