"""Keys: identifiers of the persons or things that rows describe."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence

from colonnade.common.errors import DataError

_FRACTION = re.compile(r"[+-]?(\d+\.\d*|\d*\.\d+)([eE][+-]?\d+)?|[+-]?\d+[eE][+-]?\d+")


def check_keys(keys: Sequence[str], where: str, place: Callable[[int], str]) -> None:
    """Checks that every key names one row. The error quotes keys: it is for the table's owner alone.

    Args:
        keys: of all rows.
        where: the table and the column, for messages.
        place: location of a row, by its number from 0.

    Raises:
        DataError: a key occurs in several rows, or all keys are written as fractions.
    """
    if len(set(keys)) < len(keys):
        raise _repeated(keys, where, place)
    if all(_FRACTION.fullmatch(key.strip()) for key in keys):
        raise DataError(
            f"{where}: keys are fractions, such as {keys[0]}", hint="keys are words or whole numbers: write them so"
        )


def _repeated(keys: Sequence[str], where: str, place: Callable[[int], str]) -> DataError:
    several = {key: count for key, count in Counter(keys).items() if count > 1}
    first = next(iter(several))
    rows = [place(row) for row, key in enumerate(keys) if key == first][:2]
    count = "1 key stands" if len(several) == 1 else f"{len(several)} keys stand"
    return DataError(
        f"{where}: {count} in several rows, {sum(several.values())} rows in all; {first!r} in {' and '.join(rows)}",
        hint="a key names one row: keep one row of each, or choose another column",
    )
