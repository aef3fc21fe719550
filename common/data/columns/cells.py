"""Conversion of Arrow cells to numbers, words or keys.

A format without types (CSV) gives text in every column. All functions but `decoded` take columns of a `plain_type`.

Text is read as numbers in a notation (decimal mark, thousands separator), and as dates: days since the beginning of
1970, in UTC where a zone is given.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from colonnade.common.config.data.columns import CLOCK, DATE_PARTS, Decimal, Thousands, Type

_MARKS = {",": ",", ".": r"\.", "'": "['’]", " ": " "}  # typographic variants of the separators


@dataclass(frozen=True)
class Notation:
    """A number notation: the decimal mark, and the separator of groups of three digits, in all long numbers or none."""

    decimal: Decimal = "."
    thousands: Thousands = ""

    def __str__(self) -> str:
        said = [f"decimal: {self.decimal!r}"] if self.decimal != "." else []
        return ", ".join([*said, *([f"thousands: {_quoted(self.thousands)}"] if self.thousands else [])])

    @cached_property
    def pattern(self) -> str:
        point = _MARKS[self.decimal]
        grouped = rf"|[1-9]\d{{0,2}}(?:{_MARKS[self.thousands]}\d{{3}})+(?:{point}\d+)?" if self.thousands else ""
        return rf"^[+-]?(?:(?:\d+{point}?\d*|{point}\d+)(?:[eE][+-]?\d+)?{grouped})$"

    def fits(self, text: pa.Array) -> pa.Array:
        """Mask of the cells that are numbers; null where `text` is."""
        return pc.match_substring_regex(text, self.pattern)

    def plain(self, text: pa.Array) -> pa.Array:
        if self.thousands:
            text = pc.replace_substring_regex(text, _MARKS[self.thousands], "")
        return text if self.decimal == "." else pc.replace_substring(text, self.decimal, ".")


PLAIN = Notation()
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
"""A number in plain notation. Python's own float() takes 1_000, digits of other scripts, nan and inf too."""

_LONG = re.compile(r"^[+-]?\d{16,}$", re.ASCII)

FOREIGN = (
    Notation(","),
    Notation(".", ","),
    Notation(",", "."),
    Notation(".", "'"),
    Notation(".", " "),
    Notation(",", " "),
    Notation(",", "'"),
)
"""Other common notations."""


def notations(text: pa.Array) -> tuple[Notation, ...]:
    """Notations that fit all cells; the first of several that give the same numbers."""
    found: list[tuple[Notation, pa.Array]] = []
    for one in (PLAIN, *FOREIGN):
        if pc.all(one.fits(text), min_count=0).as_py():
            numbers = one.plain(text)
            if not any(numbers.equals(others) for _, others in found):
                found.append((one, numbers))
    return tuple(one for one, _ in found)


def among(cells: pa.Array, numbers: Sequence[str]) -> pa.Array:
    """Mask of the cells that are one of these numbers, at the precision of the cells' own type; text is in plain
    notation.
    """
    kind = cells.type
    if pa.types.is_floating(kind):
        with np.errstate(over="ignore"):
            own = np.array(numbers, kind.to_pandas_dtype()).astype(np.float64)
        held = [np.isfinite(one) and bool(one) == bool(float(number)) for one, number in zip(own, numbers, strict=True)]
        return pc.is_in(pc.cast(cells, pa.float64()), pa.array(own[held]))
    found = pc.is_in(pc.cast(cells, pa.float64(), safe=False), pa.array([*map(float, numbers)], pa.float64()))
    if not (long := [number for number in numbers if _LONG.fullmatch(number)]):
        return found
    text = cells if is_text(cells) else words(cells)  # of 16 digits a float may not hold the last
    other = pc.and_(pc.match_substring_regex(text, _LONG.pattern), pc.invert(pc.is_in(text, pa.array(long))))
    return pc.and_not(found, pc.fill_null(other, False))


def without_unit(text: pa.Array, unit: str) -> pa.Array:
    """Cells with the unit before or after the number removed; null where it is absent."""
    mark = re.escape(spaced(pa.array([unit]))[0].as_py())
    has = pc.match_substring_regex(text, rf"^[+-]?\s*{mark}|{mark}$")
    bare = pc.replace_substring_regex(text, rf"^([+-]?)\s*{mark}\s*|\s*{mark}$", r"\1")
    return pc.if_else(has, bare, pa.scalar(None, pa.string()))


def _quoted(mark: str) -> str:
    return f'"{mark}"' if mark == "'" else f"'{mark}'"


MISSING = ("", "?", "NA", "N/A", "NaN", "nan", "null", "NULL")
"""Text that counts as a missing number. A missing word is an empty one only."""

MARKS = (
    "none", "nil", "nan", "-nan", "nat", "na", "n/a", "n.a.", "#n/a", "#na", "<na>", "null", "(null)", "<null>", "\\n",
    "-", "--", "---", ".", "..", "...", "*", "?", "n.d.", "nd", "n/d", "s/d", "n.b.", "n.c.", "n.v.", "n. v.", "n.v.t.",
    "k.a.", "k. a.", "unknown", "not known", "missing", "undefined", "not available", "no data",
    # de, fr, es, it, nl, pt
    "unbekannt", "fehlt", "fehlend", "keine angabe", "keine daten", "nicht bekannt", "nicht verfügbar",
    "inconnu", "inconnue", "manquant", "manquante", "non renseigné", "non renseignée", "non disponible",
    "desconocido", "desconocida", "no disponible", "sin datos", "no consta", "ns/nc",
    "sconosciuto", "sconosciuta", "mancante", "non disponibile", "non noto",
    "onbekend", "ontbreekt", "ontbrekend", "niet beschikbaar", "niet bekend",
    "desconhecido", "desconhecida", "não disponível", "não informado", "sem dados", "sem informação",
    # errors of spreadsheets, in these languages
    "#nv", "#n/d", "#nd", "#n/b", "#nb", "#null!", "#nul!", "#nulo!", "#¡nulo!", "#nullo!", "#leeg!",
    "#value!", "#wert!", "#valeur!", "#valor!", "#¡valor!", "#valore!", "#waarde!",
    "#ref!", "#bezug!", "#¡ref!", "#rif!", "#verw!", "#div/0!", "#¡div/0!", "#deel/0!",
    "#num!", "#zahl!", "#nombre!", "#¡num!", "#núm!", "#getal!", "#name?", "#nom?", "#¿nombre?", "#nome?", "#naam?",
    "#spill!", "#calc!", "#überlauf!", "#kalk!",
)  # fmt: skip
"""Text, in small letters, that programs and people write for a missing number. `MISSING` is read so; others cause a
hint.
"""

LARGEST = 3.4e38  # largest number of a column: larger ones overflow float32, and sums of squares in wider types

TRUTHS = (
    ("true", "false"), ("t", "f"), ("yes", "no"), ("y", "n"), ("ja", "nein"), ("j", "n"), ("wahr", "falsch"),
    ("oui", "non"), ("vrai", "faux"), ("v", "f"), ("sí", "no"), ("si", "no"), ("sì", "no"), ("s", "n"),
    ("verdadero", "falso"), ("vero", "falso"), ("verdadeiro", "falso"), ("sim", "não"), ("sim", "nao"),
    ("ja", "nee"), ("waar", "onwaar"), ("on", "off"),
)  # fmt: skip
"""Words for true and false, in small letters, which stand together in a column."""
TRUE, FALSE = ({*words, digit} for words, digit in zip(zip(*TRUTHS, strict=True), "10", strict=True))

LONGEST = 4096  # maximum bytes of a word or key; anything longer is a text or a file, not a category

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


class OfNoKeys(Misfit):
    """A column of a type that keys do not have: no row of it is to blame, nor one of several files."""


@dataclass(frozen=True)
class Reading:
    """How a column is read: the type of its cells, the notation of numbers in text, and their unit, "" for none."""

    type: Type
    notation: Notation = PLAIN
    unit: str = ""

    def numbers(self, cells: pa.Array) -> np.ndarray:
        """(n,) float64, NaN where a number is missing. Raises Misfit if a cell is not of the type, or not finite."""
        if self.type.startswith("date"):
            return self._days(cells)
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

    def _days(self, cells: pa.Array) -> np.ndarray:
        found = days(self._instants(cells))
        if (wrong := np.abs(found - _YEAR_0) >= _YEARS).any():
            row = int(wrong.argmax())
            said = shown(pc.cast(cells.slice(row, 1), pa.string()), 0)  # Python has no such date
            raise Misfit(row, f"{said} is no date of the years -9999 to 9999", MEND)
        return found

    def _instants(self, cells: pa.Array) -> pa.Array:
        kind = cells.type
        if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
            return cells
        if not is_text(cells):
            raise Misfit(0, f"is of type {kind}, which is no date", MEND)
        text, form = written(cells), self.type.removeprefix("date").strip()
        found = dates(text, form)
        _refuse(text, found, f"is no date of the form {form or '2024-03-01'}")
        return found


def plain_type(kind: pa.DataType) -> pa.DataType:
    """Type of a column's values without their encoding: dictionary, run lengths, extension, view."""
    if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        return plain_type(kind.value_type)
    if isinstance(kind, pa.BaseExtensionType):
        return pa.string() if isinstance(kind, pa.UuidType) else plain_type(kind.storage_type)
    return pa.string() if pa.types.is_large_string(kind) or pa.types.is_string_view(kind) else kind


def decoded(cells: pa.Array) -> pa.Array:
    """The same values as a column of `plain_type`: Polars, pandas and DuckDB encode words in five ways."""
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
    text = pc.if_else(pc.equal(text, ""), pa.scalar(None, pa.string()), text)
    return pc.if_else(pc.equal(text, "-0"), "0", text) if pa.types.is_floating(cells.type) else text


def keys(cells: pa.Array) -> pa.Array:
    """(n,) keys as text: integers in decimal digits, days as 1970-01-31, words as they are written, for
    `federation.keys` to compare. Raises Misfit.
    """
    kind = cells.type
    if not (is_text(cells) or pa.types.is_date32(kind) or is_whole(kind) or pa.types.is_null(kind)):
        hint = "keys are words or whole numbers: write them so, in every file"
        if pa.types.is_timestamp(kind) or pa.types.is_date64(kind):
            hint = (
                "keys are words, whole numbers or days: cast it to a date (date32), or to text as other members have it"
            )
        raise OfNoKeys(0, f"is of type {kind}", hint)
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


def is_whole(kind: pa.DataType) -> bool:
    """True for a type of whole numbers alone: databases have them also as decimals without a fraction."""
    return bool(pa.types.is_integer(kind) or (pa.types.is_decimal(kind) and kind.scale == 0))


def written(cells: pa.Array) -> pa.Array:
    """Numbers as text, with plain spaces; null where one is missing."""
    text = pc.utf8_trim_whitespace(spaced(pc.cast(cells, pa.string())))
    return pc.if_else(pc.is_in(text, pa.array(MISSING)), pa.scalar(None, pa.string()), text)


def spaced(text: pa.Array) -> pa.Array:
    """The same text with a space for each no-break, thin or other one."""
    if pc.all(pc.string_is_ascii(text)).as_py() is not False:  # looked up in a hundredth of the time
        return text
    return pc.replace_substring_regex(text, r"\p{Zs}", " ")


def without_marks(text: pa.Array) -> pa.Array:
    """Cells of `written`, null also where they equal one of `MARKS`."""
    return pc.if_else(pc.is_in(pc.utf8_lower(text), pa.array(MARKS)), pa.scalar(None, pa.string()), text)


def shown(cells: pa.Array, row: int) -> str:
    cell = str(cells[row].as_py())
    return repr(cell if len(cell) <= _SHOWN else cell[:_SHOWN] + "...")


def _as_text(cells: pa.Array, longest: int = LONGEST) -> pa.Array:
    try:
        text = _plain_decimals(cells) if getattr(cells.type, "scale", 0) else pc.cast(cells, pa.string())
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


def _plain_decimals(cells: pa.Array) -> pa.Array:
    """Text as other types of numbers give it: 1 and 1.5 for 1.00 and 1.50."""
    found = cells.dictionary_encode()
    plain = [f"{value:f}" for value in found.dictionary.to_pylist()]
    text = [value.rstrip("0").rstrip(".") if "." in value else value for value in plain]
    return pa.array(text, pa.string()).take(found.indices)


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
    lower = pc.utf8_normalize(pc.utf8_lower(text), form="NFC")
    nothing = pa.scalar(None, pa.float64())
    no = pc.if_else(pc.is_in(lower, pa.array(sorted(FALSE))), 0.0, nothing)
    found = pc.if_else(pc.is_in(lower, pa.array(sorted(TRUE))), 1.0, no)
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


_PER_DAY = {"D": 1, "s": 86_400, "ms": 86_400e3, "us": 86_400e6}
_YEAR_0, _YEARS = -719_528, 3_652_425  # the day it began, and 10,000 years in days
_INSTANT = pa.timestamp("us")


def dates(text: pa.Array, form: str = "") -> pa.Array:
    """Instants; null where a cell is not a date of this form.

    Args:
        text: cells without white space around them, null where one is missing.
        form: for example `%d.%m.%Y %H:%M`; "" for ISO 8601: `2024-03-01`, with `T` or a space before a time.
    """
    return _iso(text if not form else _rewritten(text, form))


def days(instants: pa.Array) -> np.ndarray:
    """Days since 1970, (n,) float64, NaN where a date is missing; instants of any resolution."""
    kind = instants.type
    unit = kind.unit if pa.types.is_timestamp(kind) else "ms" if pa.types.is_date64(kind) else "D"
    if unit == "ns":  # all others may hold dates that it does not
        instants, unit = pc.cast(instants, pa.timestamp("us", kind.tz), safe=False), "us"
    counted = pc.cast(pc.cast(instants, pa.int32() if unit == "D" else pa.int64()), pa.float64(), safe=False)
    found: np.ndarray = pc.divide(counted, float(_PER_DAY[unit])).to_numpy(zero_copy_only=False)
    return found


def _rewritten(text: pa.Array, form: str) -> pa.Array:
    """ISO 8601 text; null where a cell has another form.

    pyarrow's strptime is not used: it reads February 31 as March 2.
    """
    pattern = re.escape(form)
    for code, group in {**DATE_PARTS, **CLOCK}.items():
        pattern = pattern.replace(code, group)
    parts = pc.extract_regex(text, f"^{pattern}$")
    names = {field.name for field in parts.type}

    def part(name: str) -> pa.Array | pa.Scalar:
        if name not in names:
            return pa.scalar("00")
        return pc.utf8_lpad(pc.if_else(pc.is_valid(parts), pc.struct_field(parts, name), None), 2, "0")

    day = pc.binary_join_element_wise(*map(part, "Ymd"), "-")
    return pc.binary_join_element_wise(day, pc.binary_join_element_wise(*map(part, "HMS"), ":"), " ")


def _iso(text: pa.Array) -> pa.Array:
    text = pc.replace_substring_regex(text, r"([.]\d{6})\d+", r"\1")  # nanoseconds
    zoned = pc.match_substring_regex(text, r"\d\d:.*(Z|[+-]\d\d(:?\d\d)?)$")
    nothing = pa.scalar(None, pa.string())
    local = _parsed(pc.if_else(zoned, nothing, text), _INSTANT)
    elsewhere = _parsed(pc.if_else(zoned, text, nothing), pa.timestamp("us", "UTC"))
    return pc.coalesce(local, pc.cast(elsewhere, _INSTANT))


def _parsed(text: pa.Array, kind: pa.DataType) -> pa.Array:
    """Parsed cells, null where one cannot be read: all at once if every cell can be read, else one by one."""
    try:
        return pc.cast(text, kind)
    except pa.ArrowInvalid:
        return pa.array([_one(cell, kind) for cell in text], kind)


def _one(cell: pa.Scalar, kind: pa.DataType) -> pa.Scalar | None:
    try:
        return cell.cast(kind)
    except pa.ArrowInvalid:
        return None
