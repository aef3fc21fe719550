"""Detection of text that looks like numbers, dates or Booleans in some notation, and the setting that declares it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import repeat

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from colonnade.common.data.columns import cells
from colonnade.common.data.columns.cells import FOREIGN, NUMBER, PLAIN, Notation, notations
from colonnade.common.data.columns.features import Doubt, Kind
from colonnade.common.data.columns.spelling import in_other_encodings, latin, plain, plain_value, unescaped

SAMPLE = 10_000  # cells that are examined
_FIRST = 32  # of them, that decide for most columns
_SURE, _DOUBTFUL = 0.5, 0.1  # shares of a column

_NUMBER = "[+-]?[0-9.,'’ ]*[0-9]"
_MONEY = r"[A-Z]{0,3}\p{Sc}|[A-Z]{3}"
_UNIT = rf"{_MONEY}|Mio|Mrd|mn|bn|kg|g|cm|m|km|mm|h|min|s|ms|l|ml|°C|kWh|Kč|kr|zł|‰"
_WITH_UNIT = rf"^(?:[+-]?\s*(?P<a>{_MONEY})\s*)?(?P<n>{_NUMBER})\s*(?P<b>%|{_UNIT})?$"
_DAYS = {
    r"\d{4}/\d{1,2}/\d{1,2}": ("%Y/%m/%d",),
    r"\d{1,2}\.\d{1,2}\.\d{4}": ("%d.%m.%Y",),
    r"\d{1,2}/\d{1,2}/\d{4}": ("%d/%m/%Y", "%m/%d/%Y"),
    r"\d{1,2}-\d{1,2}-\d{4}": ("%d-%m-%Y", "%m-%d-%Y"),
}
_CLOCKS = {"": "", r",? \d{1,2}:\d{2}": " %H:%M", r",? \d{1,2}:\d{2}:\d{2}": " %H:%M:%S"}
_DATES = {
    r"^\d{4}-\d{2}-\d{2}([T ]\d{2}:\d{2}(:\d{2}([.]\d+)?)?\s?(Z|[+-]\d{2}(:?\d{2})?)?)?$": ("date",),
    **{
        f"^{day}{clock}$": tuple(f"date {form}{time}" for form in forms)
        for day, forms in _DAYS.items()
        for clock, time in _CLOCKS.items()
    },
    r"^\d{1,2}([./-])\d{1,2}[./-]\d{2}$": (),
}
_TRIED = 100  # distinct cells of which one at least is a number or date in another spelling, or no other is looked at
_DIFFERENT = 3  # numbers of a column of numbers, at least
_SURELY_MISSING = frozenset(cells.MARKS) - {"nd"}  # which is a state of the USA as well
_OF_PROGRAMS = frozenset({"nan", "-nan", "nat", "none", "null", "<na>"})
_CODES = 10  # with fewer different numbers a column is learnt from as well
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+")
_CODED = frozenset({
    "id", "ids", "code", "codes", "zip", "zipcode", "postcode", "postal", "plz", "agent", "branch", "store", "shop",
    "region", "district", "category", "type", "kind", "class", "group", "segment", "cluster", "product", "item", "sku",
    "channel", "department", "occupation", "profession", "vendor", "supplier", "manufacturer", "brand", "country",
    "county", "city", "municipality", "site", "currency", "language", "industry", "sector", "role", "diagnosis", "icd",
    "nace", "sic", "naics",
})  # fmt: skip
_PLAIN_MARK = re.compile(r"0|-?[1-9]\d{0,14}(\.\d{0,4}[1-9])?", re.ASCII)
_EXPONENT = r"^\d+[eE]\d+$"  # programs write 1e+05 or 1.0E5, and codes are written so
_LIKE_CODES = r"^\s*(0\d+|\d{17,}|\d+[eE]\d+|\d+\.\d*0)\s*$"
_CELLS = 1_000_000  # of a table, that are examined for codes
_FEW, _EACH = 50, 20  # different whole numbers that may be codes, and rows of each
_DECORATION = re.compile("[\"'\\s]+")
_MOST_WORDS = 10_000  # of a column that is looked at: more cannot be encoded
_GROUPS_OR_SMALL = r"^([1-9]\d{0,2}\.\d{3}|\d{1,3})$"
_COMPACT = r"^(19|20|99)\d{2}(0[1-9]|1[0-2])(0[1-9]|[12]\d|3[01])$"


@dataclass(frozen=True)
class Look:
    """Apparent type of some cells.

    Args:
        remedy: setting with which they are read as this type.
        cells: mask over the examined cells, Boolean.
        alone: True if plain numbers in the same column are another type, as with dates.
    """

    what: str
    remedy: str
    cells: pa.Array
    alone: bool = False

    @property
    def count(self) -> int:
        return int(pc.sum(self.cells).as_py() or 0)


def guess(name: str, column: pa.Array, notation: Notation) -> tuple[Kind, list[Doubt]]:
    """Infers the type of a text column: a category unless at least half of its non-empty cells are numbers.

    A stray word among numbers is then reported, instead of turning ten thousand numbers into a category. Raises Misfit
    if it would be a category, and at least half of it looks like numbers or dates in an undeclared notation.
    """
    text = cells.written(column)
    fits, unwritten = notation.fits(text), text.null_count
    if not pc.all(fits).as_py():  # no mark is a number
        text = cells.without_marks(text)
        fits = pc.if_else(pc.is_valid(text), fits, pa.scalar(None, pa.bool_()))
    filled = len(text) - text.null_count
    numbers = int(pc.sum(fits).as_py() or 0)
    sample = text.slice(0, SAMPLE)
    if filled == 0 == unwritten - len(text) or (numbers and _numbers_with_marks(text, fits)):
        return "number", []
    plain = int(pc.sum(notation.fits(sample)).as_py() or 0)
    present = len(sample) - sample.null_count
    if found := looks_of(name, sample, notation):
        look = found[0]
        share = (sum(one.count for one in found) + (0 if all(one.alone for one in found) else plain)) / present
        if share >= _SURE:
            if sum(one.alone and one.count >= _DOUBTFUL * present for one in found) > 1:
                look = replace(look, what="dates, written in several ways", remedy="write them alike")
            raise _refusal(name, sample, look, present)
        if share >= _DOUBTFUL:
            what = f"is taken as a category, and {share:.0%} of its cells look like {look.what}"
            return "category", [
                Doubt(name, what, f"{look.remedy}; if they are words or codes, say {entry(name, 'category')}")
            ]
    doubts = list(_truthful(name, sample))
    many = len(pc.unique(sample.filter(notation.fits(sample)))) if plain else 0  # more than there are words?
    if plain >= _DOUBTFUL * max(present, 1) or 2 * many > pc.count_distinct(sample).as_py():
        what = f"is taken as a category, and {plain / present:.0%} of its cells are plain numbers"
        strict = f"to have the other cells refused by their lines, say {entry(name, 'number')}"
        doubts.append(Doubt(name, what, f"{strict}; if all are words or codes, say {entry(name, 'category')}"))
    return "category", doubts


def _numbers_with_marks(text: pa.Array, fits: pa.Array) -> bool:
    """True for a column of numbers: at least half of the cells are, or all but those with one word, perhaps a mark."""
    if 2 * pc.sum(fits).as_py() >= len(text) - text.null_count:
        return True
    others = pc.unique(pc.filter(text, pc.fill_null(pc.invert(fits), False)))
    return len(others) == 1 and len(pc.unique(pc.filter(text, pc.fill_null(fits, False)))) >= _DIFFERENT


def marks_of_missing(words: Sequence[str]) -> list[int]:
    """Places of words that denote a missing value; none if all words are signs, such as + and -."""
    spoken = any(word[0].isalnum() for word in words)
    return [place for place, word in enumerate(words) if spoken and word.lower() in _SURELY_MISSING]


def mark_beside_codes(words: Sequence[str]) -> str:
    """The word that a program wrote for a missing number (nan, None) beside codes that are all numbers, "" for none."""
    marks = [word for word in words if word.lower() in _OF_PROGRAMS]
    others = {*words}.difference(marks)
    return marks[0] if marks and others and all(map(NUMBER.fullmatch, others)) else ""


def looks_of(name: str, text: pa.Array, notation: Notation) -> list[Look]:
    """Apparent types of the cells that are not numbers in the declared notation, the most frequent first."""
    text = pc.fill_null(text, "")
    found = [look for look in _looks(name, text, notation) if look.count]
    left = text
    for look in found:
        left = pc.if_else(look.cells, "", left)
    return sorted([*found, *_respelt(left, notation)], key=lambda look: -look.count)


def meant(name: str, text: pa.Array, row: int, notation: Notation, marks: Sequence[str] = ()) -> str:
    """Hint for a cell of a numeric column that seems to use another notation; "" if it does not."""
    if cells.without_marks(text.slice(row, 1)).null_count:
        ways = f"say {missing([text[row].as_py()], marks)}, and `missing` says what replaces it"
        said = f"if it stands for a missing value, {ways}"
        also = " as well" if text[row].as_py().lower() in _OF_PROGRAMS else ""
        return f"{said}; if they are words or codes, {entry(name, 'category')}{also}"
    own = looks_of(name, text.slice(row, 1), notation)
    if not own:
        return ""
    others = [look for look in looks_of(name, text.slice(0, SAMPLE), notation) if look.what == own[0].what]
    look = (others or own)[0]  # other cells may decide, for example if 2,500 is above 2
    return f"it looks like {look.what}: {look.remedy}; if they are words or codes, {entry(name, 'category')}"


def _looks(name: str, text: pa.Array, notation: Notation) -> Iterator[Look]:
    dated = None
    for pattern, forms in _DATES.items():
        found = pc.match_substring_regex(text, pattern)
        dated = found if dated is None else pc.or_(dated, found)
        if pc.any(found).as_py():
            yield Look("dates", _dated(name, pc.filter(text, found), forms), found, alone=True)
    bare = pc.if_else(pc.or_(dated, notation.fits(text)), "", text)
    foreign = _any(bare, [one for one in (PLAIN, *FOREIGN) if one != notation])
    if pc.any(foreign).as_py():
        plain = pc.filter(text, pc.or_(foreign, notation.fits(text)))
        yield Look("numbers in another notation", _noted(pc.filter(bare, foreign), plain), foreign)
    parts = pc.extract_regex(pc.if_else(foreign, "", bare), _WITH_UNIT)
    before, inner, after = (pc.fill_null(pc.struct_field(parts, part), "") for part in "anb")
    found = pc.and_(_any(inner, [PLAIN, *FOREIGN]), pc.not_equal(pc.binary_join_element_wise(before, after, ""), ""))
    if pc.any(found).as_py():
        units = Counter([*pc.filter(before, found).to_pylist(), *pc.filter(after, found).to_pylist()])
        yield _with_unit(
            name, [unit for unit, _ in units.most_common() if unit], pc.filter(inner, found), found, notation
        )


def _respelt(text: pa.Array, notation: Notation) -> Iterator[Look]:
    """Looks of cells that would be numbers or dates in their plain spelling; distinct ones are spelt in Python."""
    asked = pc.and_(pc.match_substring_regex(text, r"\p{Nd}"), pc.invert(notation.fits(text)))
    coded = pc.if_else(asked, text, pa.scalar(None, pa.string())).dictionary_encode()
    words = coded.dictionary.to_pylist()
    kinds = _respelt_kinds(words[:_TRIED], notation)
    if any(kinds):
        kinds += _respelt_kinds(words[_TRIED:], notation)
        of_cells = pa.array([*kinds, *[None] * (len(words) - len(kinds))], pa.string()).take(coded.indices)
        for kind, remedy in (
            ("numbers", "write them as plain numbers, such as -12.50: digits, a sign and a point alone"),
            ("dates", "write them as 2024-03-01, with a time as 2024-03-01 17:30"),
        ):
            found = pc.fill_null(pc.equal(of_cells, kind), False)
            if pc.any(found).as_py():
                yield Look(f"{kind} written in another way", remedy, found, alone=kind == "dates")


def _respelt_kinds(words: list[str], notation: Notation) -> list[str | None]:
    """For each word, as what its plain spelling would be read: numbers, dates or nothing."""
    respelt = [plain_value(word) for word in words]
    text = pa.array([new if new != old else "" for new, old in zip(respelt, words, strict=True)], pa.string())
    kinds = pc.if_else(notation.fits(text), "numbers", pa.scalar(None, pa.string()))
    for look in _looks("", text, notation):
        kinds = pc.if_else(look.cells, "dates" if look.alone else "numbers", kinds)
    found: list[str | None] = kinds.to_pylist()
    return found


def _any(text: pa.Array, ways: list[Notation]) -> pa.Array:
    found = ways[0].fits(text)
    for one in ways[1:]:
        found = pc.or_(found, one.fits(text))
    return found


def _dated(name: str, text: pa.Array, forms: tuple[str, ...]) -> str:
    if not forms:
        return "write years with four digits"
    fitting = [one for one in forms if not _unreadable(text, one)] or list(forms)
    ways = " or ".join(entry(name, one) for one in fitting)
    return ways if len(fitting) == 1 else f"{ways}: which of them, the cells do not say"


def _unreadable(text: pa.Array, form: str) -> bool:
    try:
        cells.Reading(form).numbers(text)
    except cells.Misfit:
        return True
    return False


def _noted(foreign: pa.Array, plain: pa.Array) -> str:
    ways = notations(plain)
    if ways == (PLAIN,):
        return "they have a point before the fraction, which the configuration's `decimal` is not: write them alike"
    if len(ways) == 1:
        return f"write `{ways[0]}` if they are"
    if not ways:
        return "they are written in several ways: write them alike"
    cell = foreign[0].as_py()
    read = ", or ".join(f"{one.plain(foreign)[0].as_py()} by `{one}`" for one in ways)
    return f"{cell!r} may be {read}: say which"


def _with_unit(name: str, kinds: list[str], inner: pa.Array, found: pa.Array, notation: Notation) -> Look:
    more = "" if pc.all(notation.fits(inner)).as_py() else f", and {_noted(inner, inner)}"
    if len(kinds) > 1:
        return Look(f"numbers with several units ({', '.join(kinds[:3])})", "bring them to one unit", found)
    if kinds == ["%"]:
        return Look("percentages", f"{entry(name, 'percent')}{more}", found)
    return Look(f"numbers with a unit ({kinds[0]})", f"`units: {{{_key(name)}: {kinds[0]!r}}}`{more}", found)


def _refusal(name: str, text: pa.Array, look: Look, present: int) -> cells.Misfit:
    row = pc.index(look.cells, True).as_py()
    others = f", {look.count} of the first {present} cells" if look.count > 1 else ""
    what = f"{cells.shown(text, row)} would be a word of a category, and looks like {look.what}{others}"
    return cells.Misfit(row, what, look.remedy, f"if they are words or codes, {entry(name, 'category')}")


def of_numbers(name: str, column: pa.Array, notation: Notation, place: Callable[[int], str]) -> list[Doubt]:
    """Warnings about text of numbers that may separate thousands, or be dates or codes; `place` as of `coded`."""
    sample = column.slice(0, SAMPLE)
    found = list(_numeric(name, cells.without_marks(cells.written(sample)), notation))
    return found or list(coded(name, sample, place))


def _numeric(name: str, text: pa.Array, notation: Notation) -> Iterator[Doubt]:
    filled = text.drop_null()
    if _all_match(filled, _COMPACT):
        said = f"if they are dates, say {entry(name, 'date %Y%m%d')}; if not, {entry(name, 'number')}"
        yield Doubt(name, "is taken as numbers, all of which look like dates without marks (YYYYMMDD)", said)
    if notation != PLAIN:
        return
    if _all_match(filled, _GROUPS_OR_SMALL) and pc.any(pc.match_substring(filled, ".")).as_py():
        said = f"if it is, `decimal: ',', thousands: '.'`; if not, {entry(name, 'number')}"
        yield Doubt(name, "has a point before three digits in all its larger numbers: it may separate thousands", said)


def _all_match(text: pa.Array, pattern: str) -> bool:
    """True if there is a cell and all match; the first cells decide for most columns."""
    parts = (text.slice(0, _FIRST), text)
    return all(pc.all(pc.match_substring_regex(part, pattern), min_count=1).as_py() for part in parts)


def coded(name: str, text: pa.Array, place: Callable[[int], str]) -> Iterator[Doubt]:
    """A warning about text of numbers that seem to be codes, from which a model would learn as from amounts.

    Some have leading zeros, 17 digits or a letter e within, or one number is written in two ways (1.1 and 1.10).
    `place` locates a cell by its number from 0.
    """
    if not pc.any(pc.match_substring_regex(text, _LIKE_CODES)).as_py():
        return
    text = cells.written(text)
    for pattern, what in (
        (r"^0\d+$", "have zeros before them, as codes have"),
        (r"^\d{17,}$", "have more digits than the 16 that are read"),
        (_EXPONENT, "have a letter e within, as codes have: 1e5 is read as 100000"),
    ):
        found = pc.match_substring_regex(text, pattern)
        if count := int(pc.sum(found).as_py() or 0):
            first = place(pc.index(found, True).as_py())  # reads the file again up to there
            yield Doubt(name, f"is taken as numbers, and {count} cells (first in {first}) {what}", codes_or_not(name))
            return
    fractions = text.filter(pc.match_substring_regex(text, r"^\d+\.\d+$")).unique()
    if len(fractions) > len(pc.cast(fractions, pa.float64()).unique()):
        what = "is taken as numbers, and one number is written in two ways, as versions and codes are (1.1 and 1.10)"
        yield Doubt(name, what, codes_or_not(name))


def codes_or_not(name: str) -> str:
    return f"if they are codes, say {entry(name, 'category')}; if they are amounts, {entry(name, 'number')}"


def whole_codes(values: np.ndarray, names: Sequence[str]) -> Iterator[Doubt]:
    """Warnings about columns of whole numbers that seem to be codes.

    They do if the column's name says so, or if values are few, often repeated, without neighbours, and no multiples of
    a step: amounts and counts have neighbours, such as 7 and 8. An empty name skips a column.

    Args:
        values: float64 (rows, columns), NaN where a value is missing.
    """
    start = values[: max(_EACH, min(SAMPLE, _CELLS // max(len(names), 1)))]
    with np.errstate(invalid="ignore"):
        whole = ((start == np.floor(start)) | np.isnan(start)).all(0)
    for place in np.flatnonzero(whole):
        name = names[int(place)]
        named = bool(name) and not _CODED.isdisjoint(word.lower() for word in _WORD.findall(name))
        if not name or not (named or _scattered(start[:, place])):
            continue
        column = values[:SAMPLE, place]
        found = np.unique(column[~np.isnan(column)])
        what = f"is taken as numbers, {len(found)} different whole ones"
        if named and _CODES <= len(found) < len(column) and bool((found == np.floor(found)).all()):
            yield Doubt(name, f"{what}, and by its name they may be codes", codes_or_not(name))
        elif _scattered(column):
            yield Doubt(name, f"{what} without neighbours, which may be codes", codes_or_not(name))


def _scattered(column: np.ndarray) -> bool:
    """True if numbers are whole, and too few and too irregular for amounts; NaN is left out."""
    values = np.unique(column[~np.isnan(column)])
    if not (3 <= len(values) <= _FEW and len(column) >= _EACH * len(values) and np.abs(values).max() < 2**53):
        return False
    steps = np.diff(values)
    return bool((values == np.floor(values)).all() and steps.min() > 1 and np.gcd.reduce(steps.astype(np.int64)) == 1)


def _truthful(name: str, text: pa.Array) -> Iterator[Doubt]:
    found = {
        str(word)
        for word in pc.utf8_normalize(pc.utf8_lower(text).unique(), form="NFC").to_pylist()
        if word is not None
    }
    if any(found == set(pair) for pair in cells.TRUTHS):
        yield Doubt(
            name,
            f"is taken as a category of {' and '.join(sorted(found))}",
            f"{entry(name, 'boolean')} makes one column of 0 and 1 of it; {entry(name, 'category')} leaves it",
        )


def alike(
    name: str, words: Sequence[str], codes: np.ndarray, place: Callable[[int], str], *, classes: bool = False
) -> Iterator[Doubt]:
    """A warning about words that are probably one: all but the most frequent of each group are counted.

    Args:
        codes: the place of every row's word in `words`; below 0, or NaN, where one is missing.
        classes: True for those of labels, which are few: case counts in short ones too, and some are shown.
    """
    if not (groups := _written_twice(words, 1 if classes else _DIFFERENT)):
        return
    counts = np.bincount(codes[codes >= 0].astype(np.int64), minlength=len(words))
    groups = [sorted(group, key=lambda code: -counts[code]) for group in groups]
    rarer = np.isin(codes, [code for group in groups for code in group[1:]])
    first = int(rarer.argmax())
    usual = next(group[0] for group in groups if codes[first] in group)
    where = f"{place(first)}; the more frequent one in {place(int((codes == usual).argmax()))}"
    shown = f" ({words[int(codes[first])]!a} and {words[usual]!a})" if classes else ""
    of = "class" if classes else "category"
    what = f"has words that differ from others in spelling alone{shown}, in {rarer.sum()} rows (first in {where})"
    ways = "quotation marks, spaces, case, dashes, look-alike letters, encoding"
    yield Doubt(name, what, f"write them alike ({ways}): each is a {of} of its own")


def _written_twice(words: Sequence[str], cased: int) -> list[list[int]]:
    """Places of words that differ in spelling alone; in case only with at least `cased` letters."""
    if len(words) > _MOST_WORDS:
        return []
    found: dict[str, list[int]] = {}
    for place, word in enumerate(words):
        found.setdefault(_bare(word, cased), []).append(place)
    for place, word in enumerate(words):
        ways = () if word.isascii() else map(_bare, in_other_encodings(word), repeat(cased))
        if meant := next((way for way in ways if way in found and place not in found[way]), None):
            found[meant].append(place)
    return [places for bare, places in found.items() if bare and len(places) > 1]


def _bare(word: str, cased: int) -> str:
    bare = _DECORATION.sub("", latin(plain(unescaped(word))))
    return bare.casefold() if len(bare) >= cased else bare


def entry(name: str, type: str) -> str:
    """The configuration entry that declares a column's type."""
    word = f"'{type}'" if "%" in type else type
    return f"`types: {{{_key(name)}: {word}}}`"


def missing(marks: Iterable[str], declared: Iterable[str] = (), *, more: str = "") -> str:
    """The configuration entry that adds marks of a missing value to the declared ones; `more` is another entry it
    needs.
    """
    all = dict.fromkeys([*declared, *sorted(marks)])
    return f"`missing_values: [{', '.join(map(_mark, all))}]{f', {more}' if more else ''}`"


def _mark(mark: str) -> str:
    """A mark as YAML reads it back: plain numbers without quotation marks."""
    return mark if _PLAIN_MARK.fullmatch(mark) else "'" + mark.replace("'", "''") + "'"


def _key(name: str) -> str:
    return name if name.replace("_", "a").isalnum() else repr(name)
