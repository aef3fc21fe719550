"""Formats numbers for readers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence

from colonnade.common.text import literal

_UNITS = ("B", "kB", "MB", "GB", "TB")


def amount(size: float) -> str:
    """1234567 bytes -> '1.2 MB'."""
    unit = 0
    while size >= 999.95 and unit < len(_UNITS) - 1:
        size, unit = size / 1000, unit + 1
    return f"{size:.0f} B" if unit == 0 else f"{size:.1f} {_UNITS[unit]}"


def percent(share: float, digits: int = 4) -> str:
    """0.98329 -> '98.33%'; the one form of all pages."""
    return f"{100 * share:.{digits}g}%"


def seconds(value: float) -> str:
    """17.96 -> '18 s'; hours of a long run as '1 h 5 min'."""
    if value < 3600:
        return f"{value:.3g} s" if value < 100 else f"{value:.0f} s"
    minutes = round(value / 60)
    return f"{minutes // 60} h {minutes % 60} min"


def counted(number: int, noun: str) -> str:
    """A count with its noun: `1 round`, `2 parties`, `2 classes`, `3 days`."""
    if number == 1:
        return f"{number} {noun}"
    if noun.endswith("y") and noun[-2] not in "aeiou":
        return f"{number} {noun[:-1]}ies"
    return f"{number} {noun}{'es' if noun.endswith('s') else 's'}"


def listed(names: Sequence[str], most: int = 3) -> str:
    """The first few names, and the number of others."""
    rest = len(names) - most
    return ", ".join(names[:most]) + (f" and {rest} more" if rest > 0 else "")


def encoded_rows(count: int, shape: Sequence[int]) -> str:
    """Rows with the values that the model sees of each: `900 rows, encoded as 7 numbers each`."""
    if len(shape) == 1:
        return f"{counted(count, 'row')}, encoded as {counted(shape[0], 'number')} each"
    return f"{counted(count, 'row')} of {' x '.join(map(str, shape))} values"


def markdown_table(
    head: Sequence[str],
    rows: Iterable[Sequence[object]],
    words: Collection[int] | None = None,
    say: Callable[[object], str] = literal,
) -> str:
    """A table in Markdown. `words` are the places of left-aligned columns, by default all; `say` writes a cell."""
    marks = ["---" if words is None or place in words else "--:" for place in range(len(head))]
    lines = [[literal(cell) for cell in head], marks, *([say(cell) for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
