"""Cells of a table, as Arrow has them, turned into numbers, words or keys.

A format without types (CSV) gives text in every column; others say what a column holds.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from common.data.fields import Kind

MISSING = ("", "?", "NA", "N/A", "NaN", "nan", "null", "NULL")
"""What counts as a missing number where numbers are written as text. A missing word is an empty one only."""

_SHOWN = 40  # characters of a cell in a message
_MEND = "mend it, or declare the column under `types`, or leave it out with `drop`"


class Misfit(Exception):  # it is caught beside the reading, and becomes a DataError with its place
    """A cell, number `row` of those looked at, is not of its column's type: what is wrong, and what to do."""

    def __init__(self, row: int, what: str, hint: str) -> None:
        super().__init__(what)
        self.row, self.hint = row, hint


def kind_of(cells: pa.Array) -> Kind:
    """What a column seems to hold: text is a category unless at least half of what is written are numbers.

    So a stray word among numbers is found and named, and does not make a category of ten thousand numbers.

    Raises:
        Misfit: a type that is neither, as times are.
    """
    kind = _plain(cells.type)
    if _is_text(kind):
        text = _written(cells)
        present = len(text) - text.null_count
        return "number" if 2 * _count_numbers(text) >= present else "category"
    if _is_number(kind):
        return "number"
    raise Misfit(
        0,
        f"is of type {kind}, neither a number nor a word",
        "leave it out with `drop`, convert it, or declare it a `category` under `types`",
    )


def numbers(cells: pa.Array) -> np.ndarray:
    """(n,) float64, NaN where a number is missing.

    Raises:
        Misfit: a cell is no number, or not finite.
    """
    kind = _plain(cells.type)
    if _is_text(kind):
        found = _parsed(_written(cells))
    elif _is_number(kind):
        found = pc.cast(cells, pa.float64(), safe=False)
    else:
        raise Misfit(0, f"is of type {kind}, which is no number", _MEND)
    values: np.ndarray = found.to_numpy(zero_copy_only=False).astype(np.float64, copy=False)
    if (wrong := np.isinf(values)).any():
        row = int(wrong.argmax())
        raise Misfit(row, f"{_shown(cells, row)} is not finite", "put a number in its place")
    return values


def words(cells: pa.Array) -> pa.Array:
    """(n,) strings without the spaces around them, null where a word is missing.

    Raises:
        Misfit: the column's type cannot be written as words.
    """
    text = pc.utf8_trim_whitespace(_as_text(cells))
    return pc.if_else(pc.equal(text, ""), pa.scalar(None, pa.string()), text)


def keys(cells: pa.Array) -> list[str]:
    """(n) keys as text: whole numbers in decimal digits, words as they are written, for `federation.keys` to compare.

    Raises:
        Misfit: a key is missing or blank, or of a type that is neither a whole number nor a word.
    """
    kind = _plain(cells.type)
    if not (_is_text(kind) or pa.types.is_integer(kind) or pa.types.is_null(kind)):
        raise Misfit(0, f"is of type {kind}", "keys are words or whole numbers: write them so")
    text = _as_text(cells)
    blank = pc.equal(pc.utf8_trim_whitespace(text), "")
    return whole(pc.if_else(blank, pa.scalar(None, pa.string()), text))


def whole(text: pa.Array) -> list[str]:
    """(n) words. Raises Misfit if one is missing."""
    if text.null_count:
        raise Misfit(pc.index(pc.is_null(text), True).as_py(), "the value is missing", "no row can do without it")
    found: list[str] = text.to_pylist()
    return found


def _as_text(cells: pa.Array) -> pa.Array:
    try:
        return pc.cast(cells, pa.string())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise Misfit(0, f"is of type {cells.type}, which holds no words", "leave it out with `drop`") from None


def _plain(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _is_text(kind: pa.DataType) -> bool:
    return any(of(kind) for of in (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view))


def _is_number(kind: pa.DataType) -> bool:
    of = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal, pa.types.is_boolean, pa.types.is_null)
    return any(one(kind) for one in of)


def _written(cells: pa.Array) -> pa.Array:
    """Text of numbers: null where one is missing."""
    text = pc.utf8_trim_whitespace(pc.cast(cells, pa.string()))
    return pc.if_else(pc.is_in(text, pa.array(MISSING)), pa.scalar(None, pa.string()), text)


def _parsed(text: pa.Array) -> pa.Array:
    try:
        return pc.cast(text, pa.float64())
    except pa.ArrowInvalid:
        row = next(row for row, cell in enumerate(text) if cell.is_valid and not _parses(cell))
        raise Misfit(row, f"{_shown(text, row)} is no number", _MEND) from None


def _count_numbers(text: pa.Array) -> int:
    try:
        return len(text) - int(pc.cast(text, pa.float64()).null_count)
    except pa.ArrowInvalid:
        return sum(1 for cell in text if cell.is_valid and _parses(cell))


def _parses(cell: pa.Scalar) -> bool:
    try:
        cell.cast(pa.float64())
    except pa.ArrowInvalid:
        return False
    return True


def _shown(cells: pa.Array, row: int) -> str:
    cell = str(cells[row].as_py())
    return repr(cell if len(cell) <= _SHOWN else cell[:_SHOWN] + "...")
