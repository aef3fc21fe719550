"""What every column of a table was taken for, with a few of its values: for the terminal of the table's owner alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from torch import Tensor

from colonnade.common.data.columns.features import Features
from colonnade.common.data.columns.fields import TypedColumn
from colonnade.common.escaped import escaped

_EXAMPLES, _LONGEST = 3, 24  # values of a column, and characters of one
_MOST = 100  # columns
_LOOKED_AT = 1000  # rows at a time
_KINDS = {
    "": "number",
    "number": "number",
    "percent": "percent, as a fraction of 1",
    "boolean": "boolean, as 0 and 1",
}


def described(features: Features, types: Mapping[str, str]) -> Iterator[str]:
    """A line for each typed column: name, type, missing values, examples.

    Args:
        features: as they were read.
        types: as the configuration declares them.
    """
    if not features.fields:
        return
    for name, width in Counter(field.of for field in features.fields if field.of).items():
        yield f"{name!r}: {types[name]}, as {width} numbers that the tower makes of it"
    own = [place for place, field in enumerate(features.fields) if not field.of]
    for place in own[:_MOST]:
        field, column = features.fields[place], features.values[:, place]
        missing = int(column.isnan().sum())
        absent = f"{missing} missing" if missing else "none missing"
        shown = ", ".join(_examples(field, column))
        yield f"{field.name!r}: {_kind(field, types.get(field.name, ''))}, {absent}{f'; as {shown}' if shown else ''}"
    if (more := len(own) - _MOST) > 0:
        words = sum(features.fields[place].words is not None for place in own[_MOST:])
        yield f"and {more} columns more, of which {words} are categories"


def _kind(field: TypedColumn, declared: str) -> str:
    if field.words is not None:
        return f"category of {len(field.words)} words"
    return _KINDS.get(declared, "date, in days since 1970")


def _examples(field: TypedColumn, column: Tensor) -> list[str]:
    """The first different values."""
    found: dict[float, None] = {}
    for start in range(0, len(column), _LOOKED_AT):
        part = column[start : start + _LOOKED_AT]
        for value in part[~part.isnan()].tolist():
            found.setdefault(value)
            if len(found) == _EXAMPLES:
                break
        if len(found) == _EXAMPLES:
            break
    if field.words is None:
        return [f"{value:.6g}" for value in found]
    words = (field.words[int(value)] for value in found)
    return [repr(escaped(word if len(word) <= _LONGEST else f"{word[:_LONGEST]}...", 200)) for word in words]
