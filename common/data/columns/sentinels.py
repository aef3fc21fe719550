"""Values that stand for a missing one among numbers and dates: -999, 99999, 1900-01-01, 9999-12-31.

A value is a suspect by its form, or because many rows have it and all others lie far from it. "Far" means farther from
the nearest other value than the others are from each other.

Numbers, of n rows, where "often" means 5 rows or at least two that are 1 % of all:

    form                                   suspect if the value is at an end of the column, and
    -99 and longer, 999 and longer,        it is far, in two rows; or negative, and no other is; or in the midst of
    888.., 777.., -32768, 1e30 ..          others (negative ones alone), often, and ten times as often as any other
    +-77, 88, 97, 98, 99, 997, 998 ..      it is far, often; or negative, often, and no other is
    +-7, 8, 9, and -1                      as before, beside two other values; -1 beside ten that have a range of 20
    any other                              it is far, in 5 rows, and there are ten other values

Dates: those of `_DATES` in any row if they are far; at an end if often and thrice as often as any other; in the midst
ten times as often. Any other as a number. docs/table_keys.md says what was measured with these limits.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

_ROWS, _BLOCK = 65_536, 4096  # rows that are looked at of a longer table, evenly spread, and at a time
_DAY0 = datetime.date(1970, 1, 1)
_DATES = frozenset(
    (datetime.date.fromisoformat(day) - _DAY0).days
    for day in (
        "0001-01-01", "1000-01-01", "1111-11-11", "1600-01-01", "1601-01-01", "1700-01-01", "1753-01-01", "1800-01-01",
        "1899-12-30", "1899-12-31", "1900-01-01", "1901-01-01", "1904-01-01", "1970-01-01", "1980-01-01", "2038-01-19",
        "2079-06-06", "2099-12-31", "2100-01-01", "2199-12-31", "2262-04-11", "2999-12-31", "3000-01-01", "8888-12-31",
        "9998-12-31", "9999-01-01", "9999-12-30", "9999-12-31",
    )
)  # fmt: skip
_LONG = frozenset(
    {float(digit * length) for digit in "789" for length in range(3, 16)}
    | {float("9" * length + ".9" + more) for length in range(2, 8) for more in ("", "9")}
    | {float(word) for word in (
        "32767", "32768", "65535", "2147483647", "2147483648", "4294967295", "9223372036854775807", "1e20", "1e30",
        "1e34", "1e35", "1e36", "1e37", "1e38", "9.9692099683868690e36", "9.969209968386869e36", "999.25", "9999.25",
    )}
)  # fmt: skip
_PAIRS = frozenset(
    {77.0, 88.0, 97.0, 98.0, 99.0} | {float("9" * length + last) for length in range(2, 8) for last in "78"}
)
_DIGITS = frozenset({7.0, 8.0, 9.0})
_SIZES = _LONG | _PAIRS | _DIGITS | {1.0}
_MIDST_MARKS = (-99.0, -999.0, -9999.0, -99999.0, -999999.0)

_OFTEN, _SHARE = 5, 0.01
_SINGLE, _MIDST = 3, 10  # times as often as any other value, of dates at an end, and of values in the midst
_VALUES = 10  # different others, beside which a value without a form is a suspect
_RANGE = 20  # of others beside which -1 is
_PEELED = 6  # suspects of a column, at most
_SAMPLE, _CELLS = 4096, 2_000_000  # rows that are looked at of a column, and cells of a table


@dataclass(frozen=True)
class Suspect:
    """A value (of dates: the day) that may stand for a missing one, its number of rows and the first of them."""

    value: float
    count: int
    row: int


def suspects(values: np.ndarray, types: Sequence[str]) -> Iterator[tuple[int, list[Suspect]]]:
    """Suspects by column index. `types` are as a configuration names them; categories and Booleans are skipped.

    Args:
        values: float64 (rows, columns), NaN where a value is missing.
    """
    dated = np.array([type.startswith("date") for type in types])
    scales = np.array([100.0 if type == "percent" else 1.0 for type in types])  # the form is that of the cell
    looked_at = np.array([type not in ("category", "boolean") for type in types])
    lows, highs = np.full(len(types), np.nan), np.full(len(types), np.nan)
    spread = values if len(values) <= _ROWS else values[_spread(len(values))]
    for start in range(0, len(spread), _BLOCK):
        block = spread[start : start + _BLOCK]
        np.fmin(lows, np.fmin.reduce(block, axis=0), out=lows)
        np.fmax(highs, np.fmax.reduce(block, axis=0), out=highs)
    sample = spread[:: -(-len(spread) // max(16, min(_SAMPLE, _CELLS // max(len(types), 1)))) or 1]
    with np.errstate(invalid="ignore"):
        formed = _formed(sample, lows, highs, dated, scales)
        candidates = formed | _apart(sample, lows, highs)
    for place in np.flatnonzero(candidates & looked_at & (lows < highs)):
        day, scale = bool(dated[place]), float(scales[place])
        column = np.floor(spread[:, place]) if day else np.ascontiguousarray(spread[:, place])
        ends = (np.floor(end[place]) if day else end[place] for end in (lows, highs))
        if not formed[place] and max(int((column == end).sum()) for end in ends) < _OFTEN:
            continue
        known, counts = np.unique(column[~np.isnan(column)], return_counts=True)
        if found := _of_column(known * scale, counts, day=day):
            yield int(place), [_counted(values[:, place], float(known[at]), day=day) for at in found]


def _spread(rows: int) -> np.ndarray:
    """Sampled rows of a long table: one of each part, at random places, as marks may be periodic."""
    parts = np.linspace(0, rows, _ROWS, endpoint=False).astype(np.int64)
    return parts + np.random.default_rng(0).integers(0, rows // _ROWS, _ROWS)


def _counted(column: np.ndarray, value: float, *, day: bool) -> Suspect:
    of = (np.floor(column) if day else column) == value
    return Suspect(value, int(of.sum()), int(of.argmax()))


def _formed(
    sample: np.ndarray, lows: np.ndarray, highs: np.ndarray, dated: np.ndarray, scales: np.ndarray
) -> np.ndarray:
    """(columns,), True where a value at an end has a form, or in the sample one that may stand in the midst."""
    found: np.ndarray = dated & (np.floor(sample) == 0).any(0)
    for mark in _MIDST_MARKS:
        found |= ~dated & (sample * scales == mark).any(0)
    for ends in (lows, highs):
        marks = np.where(dated, np.isin(np.floor(ends), list(_DATES)), np.isin(np.abs(ends * scales), list(_SIZES)))
        found |= marks
    return found


def _apart(sample: np.ndarray, lows: np.ndarray, highs: np.ndarray) -> np.ndarray:
    """(columns,), True where all other values may be in one half of the range, and several rows have the end."""
    middles = (lows + highs) / 2
    low = ~((sample > lows) & (sample < middles)).any(0)
    high = ~((sample > middles) & (sample < highs)).any(0)
    for place in np.flatnonzero(low | high):
        if len(np.unique(sample[:, place])) <= _VALUES // 2:  # codes and truth values
            low[place] = high[place] = False
    found: np.ndarray = low | high
    return found


def _form(value: float, *, day: bool) -> int:
    """Strength of a value's form: 3 if it only denotes a missing value, 2 and 1 for shorter ones, 0 otherwise."""
    if day:
        return 3 if value // 1 in _DATES else 0
    size = abs(value)
    if size in _LONG or value == -99:
        return 3
    return 2 if size in _PAIRS else 1 if size in _DIGITS or value == -1 else 0


def _of_column(known: np.ndarray, counts: np.ndarray, *, day: bool) -> list[int]:
    """Indices of the suspects among a column's distinct values, ascending (k,), with their numbers of rows (k,)."""
    rows = int(counts.sum())
    first, last = 0, len(known) - 1
    peeled = list[int]()
    while first < last and len(peeled) < _PEELED:
        # The one that lies farther from its neighbour goes first.
        ends = [at for at in (first, last) if _form(float(known[at]), day=day)]
        if not ends:
            break
        at = max(
            ends, key=lambda end: known[first + 1] - known[first] if end == first else known[last] - known[last - 1]
        )
        peeled.append(at)
        first, last = (first + 1, last) if at == first else (first, last - 1)
    inner = np.arange(first, last + 1)
    found = {at for at in peeled if _by_form(known, counts, at, inner, rows, day=day)}
    while True:  # one that is none after all is one of the others
        inner = np.delete(np.arange(len(known)), list(found))
        kept = {at for at in found if _by_form(known, counts, at, inner, rows, day=day)}
        if kept == found:
            break
        found = kept
    for at in (inner[0], inner[-1]) if len(inner) > _VALUES else ():
        if counts[at] >= _OFTEN and _far(known, at, inner[inner != at]):
            found.add(int(at))
    if not found:
        found |= _between(known, counts, rows, day=day)
    return sorted(found)


def _by_form(known: np.ndarray, counts: np.ndarray, at: int, inner: np.ndarray, rows: int, *, day: bool) -> bool:
    value, count, form = float(known[at]), int(counts[at]), _form(float(known[at]), day=day)
    others = inner[inner != at]
    if not len(others):
        return False
    far, often = _far(known, at, others), _is_often(count, rows)
    if day:
        return far or (often and count >= _SINGLE * int(counts[others].max()))
    alone = value < 0 <= known[others[0]]
    if form == 3:
        return (far and count > 1) or alone
    if value == -1:
        return alone and often and len(others) >= _VALUES and known[others[-1]] - known[others[0]] >= _RANGE
    if form == 1 and len(others) == 1:
        return False  # two values, as 3 and 9, are a choice
    return often and (far or (alone and form == 2) or (alone and value < -1))


def _between(known: np.ndarray, counts: np.ndarray, rows: int, *, day: bool) -> set[int]:
    """Suspects between other values: many rows have them."""
    if len(known) <= _VALUES:
        return set()
    most = np.argmax(counts)
    value = float(known[most])
    second = int(np.partition(counts, -2)[-2])
    marked = value == 0 if day else value < 0 and _form(value, day=day) == 3
    often = _is_often(int(counts[most]), rows) and counts[most] >= _MIDST * second
    return {int(most)} if marked and often else set()


def _is_often(count: int, rows: int) -> bool:
    return count >= _OFTEN or (count > 1 and count >= _SHARE * rows)


def _far(known: np.ndarray, at: int, others: np.ndarray) -> bool:
    """True if a value lies farther from all others than they from each other."""
    low, high = float(known[others[0]]), float(known[others[-1]])
    value = float(known[at])
    return max(low - value, value - high) > high - low
