"""Conversion of Arrow cells to numbers, words or keys.

A format without types (CSV) gives text in every column. All functions but `decoded` take columns of a `plain_type`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from colonnade.common.config.data.columns import Type
from colonnade.common.data.columns import dates
from colonnade.common.data.columns.notation import PLAIN, Notation, without_unit

MISSING = ("", "?", "NA", "N/A", "NaN", "nan", "null", "NULL")
"""Text that counts as a missing number. A missing word is an empty one only."""

MARKS = (
    "none", "nil", "nan", "-nan", "nat", "na", "n/a", "n.a.", "#n/a", "#na", "<na>", "null", "(null)", "#null!",
    "\\n", "#value!", "#ref!", "#div/0!", "#num!", "#name?", "-", "--", "---", ".", "..", "...", "*", "?", "k.a.",
    "n.d.", "nd", "unknown", "missing", "undefined", "unbekannt", "not available", "keine angabe",
)  # fmt: skip
"""Text, in small letters, that programs and people write for a missing number. `MISSING` is read so; others cause a
hint.
"""

LARGEST = 3.4e38
"""Largest number of a column: larger ones overflow float32, and sums of squares in wider types."""

TRUE = ("true", "t", "yes", "y", "ja", "j", "wahr", "oui", "vrai", "on", "1")
FALSE = ("false", "f", "no", "n", "nein", "falsch", "non", "faux", "off", "0")

LONGEST = 4096
"""Maximum bytes of a word or key; anything longer is a text or a file, not a category."""

_SHOWN = 40  # characters of a cell in a message
MEND = (
    "mend it, or empty the cell if it stands for a missing value; or declare the column under `types` (words and codes "
    "are a `category`), or leave it out with `drop`"
)
_TEXTS = "declare the column `text` under `types`, for a tower that reads texts"
_UNQUOTED = (
    "the cell has several lines: remove the quotation mark that begins it (does a quotation mark lack its partner?)"
)


class Misfit(Exception):  # the reader catches it and raises a DataError that names the place
    """A cell (index `row` in the batch) does not have its column's type: the fault, the remedy, or a further hint."""

    def __init__(self, row: int, what: str, hint: str, otherwise: str = "") -> None:
        super().__init__(what)
        self.row, self.remedy, self.hint = row, hint, "; ".join(filter(None, (hint, otherwise)))


@dataclass(frozen=True)
class Reading:
    """How a column is read: the type of its cells, the notation of numbers in text, and their unit, "" for none."""

    type: Type
    notation: Notation = PLAIN
    unit: str = ""

    def numbers(self, cells: pa.Array) -> np.ndarray:
        """(n,) float64, NaN where a number is missing. Raises Misfit if a cell is not of the type, or not finite."""
        if self.type.startswith("date"):
            return dates.days(self._instants(cells))
        if not is_text(cells):
            values = _typed(cells, self.type)
        elif self.type == "boolean":
            values = _truths(written(cells))
        elif self.type == "percent":
            values = self._parsed(written(cells), "%") / 100
        else:
            values = self._parsed(written(cells), self.unit)
        with np.errstate(invalid="ignore"):
            wrong = np.abs(values) >= LARGEST
        if wrong.any():
            row = int(wrong.argmax())
            if np.isinf(values[row]):
                raise Misfit(row, f"{shown(cells, row)} is not finite", "put a number in its place")
            hint = "if it stands for a missing value, empty the cell; else write the column in another unit"
            raise Misfit(row, f"{shown(cells, row)} is too large to be scaled", hint)
        return values

    def _parsed(self, text: pa.Array, unit: str) -> np.ndarray:
        bare = without_unit(text, unit) if unit else text
        _refuse(text, bare, f"has no {unit!r}, which the column's numbers are said to have")
        try:
            if self.notation == PLAIN:
                found = pc.cast(bare, pa.float64())
                if not pc.any(pc.is_nan(found)).as_py():  # NAN and -nan, in any letters, are no numbers
                    return _floats(found)
        except pa.ArrowInvalid:
            pass  # one of them is no number: which?
        fits = pc.if_else(self.notation.fits(bare), bare, pa.scalar(None, pa.string()))
        _refuse(text, fits, "is no number")
        return _floats(pc.cast(self.notation.plain(bare), pa.float64()))

    def _instants(self, cells: pa.Array) -> pa.Array:
        kind = cells.type
        if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
            return cells
        if not is_text(cells):
            raise Misfit(0, f"is of type {kind}, which is no date", MEND)
        text, form = written(cells), self.type.removeprefix("date").strip()
        found = dates.dates(text, form)
        _refuse(text, found, f"is no date of the form {form or '2024-03-01'}")
        return found


def plain_type(kind: pa.DataType) -> pa.DataType:
    """Type of a column's values without what is around them: a dictionary, lengths of runs, an extension, a view."""
    if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        return plain_type(kind.value_type)
    if isinstance(kind, pa.BaseExtensionType):
        return pa.string() if isinstance(kind, pa.UuidType) else plain_type(kind.storage_type)
    return pa.string() if pa.types.is_large_string(kind) or pa.types.is_string_view(kind) else kind


def decoded(cells: pa.Array) -> pa.Array:
    """The same values as a column of `plain_type`: Polars, pandas and DuckDB write words in five ways."""
    kind = cells.type
    if pa.types.is_dictionary(kind):
        return decoded(cells.dictionary).take(cells.indices)
    if pa.types.is_run_end_encoded(kind):
        return decoded(pc.run_end_decode(cells))
    if isinstance(kind, pa.BaseExtensionType):
        if isinstance(kind, pa.UuidType):
            return pa.array([None if value is None else str(value) for value in cells.to_pylist()], pa.string())
        return decoded(cells.storage)
    return pc.cast(cells, plain_type(kind)) if kind != plain_type(kind) else cells


def words(cells: pa.Array, longest: int = LONGEST) -> pa.Array:
    """(n,) strings without surrounding spaces, null where a word is missing or a number NaN. Raises Misfit."""
    if pa.types.is_floating(cells.type):  # arrays and some tables write a missing number as NaN
        cells = pc.if_else(pc.is_nan(cells), pa.scalar(None, cells.type), cells)
    text = pc.utf8_trim_whitespace(_as_text(cells, longest))
    return pc.if_else(pc.equal(text, ""), pa.scalar(None, pa.string()), text)


def keys(cells: pa.Array) -> pa.Array:
    """(n,) keys as text: integers in decimal digits, days as 1970-01-31, words as they are written, for
    `federation.keys` to compare. Raises Misfit.
    """
    kind = cells.type
    if not (is_text(cells) or pa.types.is_date32(kind) or pa.types.is_integer(kind) or pa.types.is_null(kind)):
        raise Misfit(0, f"is of type {kind}", "keys are words or whole numbers: write them so")
    text = _as_text(cells)
    blank = pc.equal(pc.utf8_trim_whitespace(text), "")
    return whole(pc.if_else(blank, pa.scalar(None, pa.string()), text))


def whole(text: pa.Array, hint: str = "fill it in, or leave the row out") -> pa.Array:
    """The same words. Raises Misfit with the hint if one is missing."""
    if text.null_count:
        raise Misfit(pc.index(pc.is_null(text), True).as_py(), "the value is missing", hint)
    return text


def is_text(cells: pa.Array) -> bool:
    return bool(pa.types.is_string(cells.type))


def is_number(cells: pa.Array) -> bool:
    kind = cells.type
    of = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal, pa.types.is_boolean, pa.types.is_null)
    return any(one(kind) for one in of)


def written(cells: pa.Array) -> pa.Array:
    """Numbers as text; null where one is missing."""
    text = pc.utf8_trim_whitespace(pc.cast(cells, pa.string()))
    return pc.if_else(pc.is_in(text, pa.array(MISSING)), pa.scalar(None, pa.string()), text)


def without_marks(text: pa.Array) -> pa.Array:
    """Text of `written`, null also where one of `MARKS` stands."""
    return pc.if_else(pc.is_in(pc.utf8_lower(text), pa.array(MARKS)), pa.scalar(None, pa.string()), text)


def shown(cells: pa.Array, row: int) -> str:
    cell = str(cells[row].as_py())
    return repr(cell if len(cell) <= _SHOWN else cell[:_SHOWN] + "...")


def _as_text(cells: pa.Array, longest: int = LONGEST) -> pa.Array:
    try:
        text = pc.cast(cells, pa.string())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise Misfit(0, f"is of type {cells.type}, which holds no words", "leave it out with `drop`") from None
    for wrong, what, hint in (
        (pc.greater(pc.binary_length(text), longest), f"a cell of more than {longest} bytes", _TEXTS),
        (pc.match_substring(text, "\0"), "a NUL byte in a cell", "write the table again as text, say in UTF-8"),
    ):
        if pc.any(wrong).as_py():
            row = pc.index(wrong, True).as_py()
            if lines := text[row].as_py().count("\n"):  # it has swallowed the rows behind it
                said = f"a quotation mark begins a cell of {lines + 1} lines: {what}"
                raise Misfit(
                    row, said, "remove the mark in that line; if it is one text, leave the column out with `drop`"
                )
            raise Misfit(row, what, f"{hint}; or leave the column out with `drop`")
    return text


def _typed(cells: pa.Array, type: Type) -> np.ndarray:
    kind = cells.type
    if not is_number(cells):
        raise Misfit(0, f"is of type {kind}, which is no number", MEND)
    if type == "percent":
        raise Misfit(0, f"is of type {kind}, and a percentage is text with a % behind it", "declare it a `number`")
    values = _floats(pc.cast(cells, pa.float64(), safe=False))
    if type == "boolean" and (wrong := ~np.isin(values, (0, 1)) & ~np.isnan(values)).any():
        row = int(wrong.argmax())
        raise Misfit(row, f"{shown(cells, row)} is neither true nor false", MEND)
    return values


def _truths(text: pa.Array) -> np.ndarray:
    lower = pc.utf8_lower(text)
    nothing = pa.scalar(None, pa.float64())
    no = pc.if_else(pc.is_in(lower, pa.array(FALSE)), 0.0, nothing)
    found = pc.if_else(pc.is_in(lower, pa.array(TRUE)), 1.0, no)
    _refuse(text, found, "is neither true nor false")
    return _floats(found)


def _refuse(text: pa.Array, found: pa.Array, what: str) -> None:
    """Raises Misfit for the first cell that is not empty and could not be read."""
    if text.null_count < found.null_count:
        row = pc.index(pc.and_(pc.is_valid(text), pc.is_null(found)), True).as_py()
        lines = "\n" in (text[row].as_py() or "")
        raise Misfit(row, f"{shown(text, row)} {what}", _UNQUOTED if lines else MEND)


def _floats(cells: pa.Array) -> np.ndarray:
    found: np.ndarray = cells.to_numpy(zero_copy_only=False).astype(np.float64, copy=False)
    return found
