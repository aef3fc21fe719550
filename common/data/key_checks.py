"""Keys that repeat, or that other members probably write differently."""

from __future__ import annotations

import re
import string
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from itertools import permutations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from colonnade.common.data.columns.features import Doubt
from colonnade.common.data.columns.spelling import in_other_encodings, latin, plain_value
from colonnade.common.data.keys import KeyColumn
from colonnade.common.errors import DataError

_BLOCK = 65_536  # keys that are looked at together
_FRACTION = re.compile(r"[+-]?(\d+\.\d*|\d*\.\d+)([eE][+-]?\d+)?|[+-]?\d+[eE][+-]?\d+", re.ASCII)


def refuse_repeated(keys: Sequence[str], where: str, place: Callable[[int], str]) -> None:
    """Refuses keys that name several rows. The error quotes a key: it is for the table's owner alone.

    Args:
        place: location of a row, by its number from 0.
    """
    if not _ascend(keys) and _repeat(keys):
        raise _repeated(keys, where, place)


def refuse_fractions(keys: Sequence[str], where: str) -> None:
    """Refuses a column of keys, or of parts of keys, that are all written as fractions."""
    if _FRACTION.fullmatch(keys[:1][0].strip()) and all(_FRACTION.fullmatch(key.strip()) for key in keys):
        short = any(re.match(_SHORTENED, key.strip()) for key in keys)
        hint = (
            _GIVEN_BACK if short else "keys are words or whole numbers: write them without the fraction, as 17 for 17.0"
        )
        raise DataError(f"{where}: keys are fractions, such as {keys[0]}", hint=hint)


def _ascend(keys: Sequence[str]) -> bool:
    """True if keys ascend byte by byte, so that none repeats; creates no Python objects."""
    if not isinstance(keys, KeyColumn):
        return False
    return bool(pc.all(pc.less(keys.text[:-1], keys.text[1:])).as_py())


def _repeat(keys: Sequence[str]) -> bool:
    """True if a key repeats. Hashes are compared, 8 bytes a key, and keys with equal hashes."""
    ordered = np.fromiter(map(hash, keys), np.int64, len(keys))
    ordered.sort()
    twice = ordered[1:][ordered[1:] == ordered[:-1]]
    for start in range(0, len(twice), _BLOCK):
        doubtful, found = set(twice[start : start + _BLOCK].tolist()), set[str]()
        for key in keys:
            if hash(key) in doubtful:
                if key in found:
                    return True
                found.add(key)
    return False


_SHORTENED = r"^[+-]?\d+([.,]\d+)?[eE]\+?\d+$"
_PLAIN = f"{string.digits}{string.ascii_letters}_-".encode()
_GIVEN_BACK = "write all digits again, from the original table: they may be lost here"
_CP1252 = "ŒœŠšŸŽžƒˆ˜–—‘’‚“”„†‡•…‰‹›€™"  # which it has in place of the bytes 80 to 9F
_HIDDEN = r"\p{Cf}\p{Cc}\p{Zl}\p{Zp}\x{a0}\x{1680}\x{2000}-\x{200a}\x{202f}\x{205f}\x{3000}"
_HIDDEN += r"\x{34f}\x{115f}\x{1160}\x{2800}\x{3164}\x{ffa0}\x{fe00}-\x{fe0f}"  # marks and letters that show nothing
_SPOILT = {
    r"^[+-]?\d+(\.0*|,0{1,2})$": "look like whole numbers that became fractions (as 17.0); write them without it",
    r"^[+-]?(\d+([.,]\d+)?[eE]\+|\d[.,]\d+[eE])\d+$": (
        f"look like numbers that a program has shortened (as 4.02E+12); {_GIVEN_BACK}"
    ),
    r"^[+-]?\d{1,3}([,'’ \x{a0}\x{202f}]\d{3})+$|^[+-]?\d{1,3}(\.\d{3}){2,}$": (
        "have separators of thousands (as 1,234); write them with digits alone (as 1234)"
    ),
    r"^\d{4}-\d\d-\d\d[T ]00:00(:00([.]0+)?)?(Z|[+-]00:?00)?$": (
        "are days with a time of 00:00; write the day alone (as 2024-01-31)"
    ),
    rf"\x{{fffd}}|[ÂÃ][\x{{80}}-\x{{bf}}{_CP1252}]|â€|ï»¿": (
        "have characters of a wrong encoding (as Ã¤ for ä); name the table's `encoding`, or write it again"
    ),
    f"[{_HIDDEN}]": "have invisible characters, or spaces that are not plain ones; remove them",
    r"[^\P{Nd}0-9]": "have digits of another script, which look like 0 to 9; write them as 0 to 9",
    r"""^(['`’]|=?").""": "begin with a quotation mark, as spreadsheets protect numbers; remove it",
    r"""^(b['"].*['"]|\[['"].*\]|(np\.\w+|(datetime\.)?date\w*|Decimal|UUID|Timestamp|ObjectId)\(.*\))$""": (
        "are written as a program shows them (as b'17' or np.int64(17)); write 17"
    ),
    r"&(#\d+|#[xX][0-9a-fA-F]+|[A-Za-z]{2,8}\d*);": "have references of HTML (as &euml; for ë); write the characters",
    r"%[C-Fc-f][0-9A-Fa-f]%[89ABab][0-9A-Fa-f]|\\(x[89a-f][0-9a-f]|u[0-9a-f]{4})": (
        "have escapes of an address or a program (as %C3%AB or \\xeb for ë); write the characters"
    ),
    r"\p{Latin}[\p{Cyrillic}\p{Greek}]|[\p{Cyrillic}\p{Greek}]\p{Latin}": (
        "have letters of two scripts, which look alike (as Cyrillic К and K); write them in one"
    ),
    r"[\x{2010}-\x{201f}\x{2212}«»‹›]": "have dashes or quotation marks of word processors; write - and ' instead",
}
"""Patterns of spoilt keys, of which the first counts, with what is said of them."""

_KEPT = 15  # digits of a number, by a spreadsheet
_LONG, _ROUNDED = rf"^\d{{{_KEPT},}}\d$", rf"^[1-9]\d{{{_KEPT - 1}}}0+$"


def key_doubts(keys: KeyColumn, column: str, place: Callable[[int], str]) -> Iterator[Doubt]:
    """Warnings about keys that other members probably write differently; none quotes a key. `place` locates a row."""
    # No pattern but _ROUNDED finds anything in letters and digits alone, which most keys are.
    blocks = [keys.text[start : start + _BLOCK] for start in range(0, len(keys), _BLOCK)]
    told = dict[str, int]()
    if any(pc.max(pc.binary_length(block)).as_py() > _KEPT for block in blocks):
        rounded = _count(keys.text, _ROUNDED)
        if 2 * rounded > _count(keys.text, _LONG):
            told[f"have nothing but zeros after {_KEPT} digits, as a spreadsheet rounds; {_GIVEN_BACK}"] = rounded
    if any(KeyColumn(block).parts[1].tobytes().translate(None, _PLAIN) for block in blocks):
        plain = pc.match_substring_regex(keys.text, "^[0-9A-Za-z_-]*$")
        text = pc.utf8_trim_whitespace(keys.text.filter(pc.invert(plain)))
        for pattern, what in _SPOILT.items():
            found = pc.match_substring_regex(text, pattern)
            told[what] = int(pc.sum(found).as_py() or 0)
            text = text.filter(pc.invert(found))
    for said, count in told.items():
        what, _, hint = said.partition("; ")
        if count:
            others = "other members probably write them differently"
            yield Doubt(column, f"is the key, and {count} of {len(keys)} keys {what}", f"{hint}; {others}")
    for what, (count, first) in _partly_spoilt(keys).items():
        said = f"is the key, and {count} of {len(keys)} keys (first in {place(first)}) {what}"
        yield Doubt(column, said, "write all keys alike; other members probably write them differently")


_FEWEST, _SHAPES, _LOOKED_AT = 20, 100, 32  # keys of a column, different shapes of them, and keys of a shape
_SHAPE = bytes.maketrans(_PLAIN, b"9" * 10 + b"a" * 26 + b"A" * 26 + b"_-")
_CONFUSED = str.maketrans("OoIl", "0011")
_CASES = 3  # ways to write a word's case: more are random
_DAYS = ("%Y-%m-%d", "%d.%m.%Y", "%m/%d/%Y", "%d/%m/%Y", "%d-%m-%Y", "%Y/%m/%d", "%Y%m%d")
_SERIAL = re.compile(r"[1-6]\d{4}", re.ASCII)  # days since 1899-12-30, as spreadsheets count them


@dataclass
class _Shape:
    """Keys that are alike but for their digits and plain letters: their number, and the first ones with their rows."""

    name: str
    count: int = 0
    keys: list[str] = field(default_factory=list)
    first: int = 0

    @cached_property
    def cased(self) -> str:
        return self.name.casefold()

    @cached_property
    def days(self) -> str:
        """The notation in which all keys are days, "" if they are none."""
        if "9" not in self.name:
            return ""
        for form in _DAYS:
            if all(_is_day(key, form) for key in self.keys):
                return form
        if all(map(_SERIAL.fullmatch, self.keys)):
            return "serial"
        return "words" if all(_is_day(day := plain_value(key), _DAYS[0]) and day != key for key in self.keys) else ""

    def become(self, other: _Shape, way: Callable[[str], str]) -> bool:
        """True if all keys are changed by `way`, and then have the shape of others."""
        return all(way(key) != key and _shape(way(key)) == other.name for key in self.keys)


def _partly_spoilt(keys: KeyColumn) -> dict[str, tuple[int, int]]:
    """How many keys are another spelling of the other keys' shape, and the first one's row, by what is wrong.

    Shapes are compared, of which a column has few, and a sample of the keys of each.
    """
    shapes = _shapes(keys)
    found = defaultdict[str, dict[str, _Shape]](dict)
    for one, other in permutations(shapes, 2):
        for what in _faults(one, other, shapes, len(keys)):
            found[what][one.name] = one
    return {
        what: (sum(one.count for one in of.values()), min(one.first for one in of.values()))
        for what, of in found.items()
    }


def _faults(one: _Shape, other: _Shape, shapes: Sequence[_Shape], total: int) -> Iterator[str]:
    """What makes `one` a spelling of `other`."""
    rarer, most = (one.count, one.first) <= (other.count, other.first), 2 * (one.count + other.count) >= total
    if one.become(other, latin):
        yield "have letters of another script that look like the others' (as Cyrillic К for K)"
    if rarer and any(_shape(way) == other.name for way in in_other_encodings(one.keys[0])):
        yield "have characters of another encoding than the others"
    unknown = re.escape(one.name).replace(r"\?", "(?:[aA]|[^\x00-\x7f]+)")
    if "?" in one.name and re.fullmatch(unknown, other.name):
        yield "have a question mark where others have a letter, as programs write letters that they do not know"
    numbers = set(other.name) == {"9"} and 10 * other.count >= total  # most may be spoilt, each in other places
    if (numbers or (most and other.count > one.count)) and one.become(other, lambda key: key.translate(_CONFUSED)):
        yield "have the letters O, I or l where others have the digits 0 and 1"
    if rarer and most and 1 < sum(shape.cased == one.cased == other.cased for shape in shapes) <= _CASES:
        yield "have capital letters where others have small ones, or the reverse"
    if rarer and one.days and other.days and one.days != other.days and {one.days, other.days} != {"serial", "%Y%m%d"}:
        yield "are days in another notation than the others"
    if _shorter(one, other):
        yield "have fewer digits than those that begin with zeros: zeros may be lost"


def _shorter(one: _Shape, other: _Shape) -> bool:
    """True if a number of one has fewer digits than the same number of the other, which begins with a zero there."""
    runs, others = (re.findall("9+|[^9]+", shape.name) for shape in (one, other))
    if len(runs) != len(others) or len(one.name) >= len(other.name):
        return False
    different = [place for place, (run, long) in enumerate(zip(runs, others, strict=True)) if run != long]
    if len(different) != 1 or others[different[0]][0] != "9" or runs[different[0]][0] != "9":
        return False
    begin = len("".join(runs[: different[0]]))
    return any(key[begin] == "0" for key in other.keys) and not any(key[begin] == "0" for key in one.keys)


def short_words(column: str, words: Sequence[str], codes: np.ndarray, place: Callable[[int], str]) -> Iterator[Doubt]:
    """A warning about words of a category or classes that have lost zeros which others of their shape have.

    `codes` are the places of the rows' words in `words`.
    """
    shapes, places = dict[str, _Shape](), defaultdict[str, list[int]](list)
    for code, word in enumerate(words):
        shapes.setdefault(name := _shape(word), _Shape(name)).keys.append(word)
        places[name].append(code)
        if len(shapes) > _SHAPES:
            return
    short = {one.name for one, other in permutations(shapes.values(), 2) if _shorter(one, other)}
    rows = np.isin(codes, [code for name in short for code in places[name]])
    if rows.any():
        what = f"has words with fewer digits than those that begin with zeros, in {rows.sum()} rows"
        ways = "write them alike, with all zeros: they may be lost, and each is a word of its own"
        yield Doubt(column, f"{what} (first in {place(int(rows.argmax()))})", ways)


def _is_day(key: str, form: str) -> bool:
    try:
        return 1800 <= datetime.strptime(key, form).year < 2200
    except ValueError:
        return False


def _shape(key: str) -> str:
    return key.encode().translate(_SHAPE).decode()


def _shapes(keys: KeyColumn) -> list[_Shape]:
    """The shapes of the keys, none if the keys are few, or have many shapes, as texts have."""
    found = dict[str, _Shape]()
    for begin in range(0, len(keys) if len(keys) >= _FEWEST else 0, _BLOCK):
        block = KeyColumn(keys.text[begin : begin + _BLOCK])
        ends, text = block.parts
        of_keys = KeyColumn.of_parts(ends, np.frombuffer(text.tobytes().translate(_SHAPE), np.uint8)).text
        coded = of_keys.dictionary_encode()
        if len(coded.dictionary) > _SHAPES:
            return []
        codes = coded.indices.to_numpy()
        counts = np.bincount(codes)
        for code, name in enumerate(coded.dictionary.to_pylist()):
            shape = found.setdefault(name, _Shape(name))
            if len(shape.keys) < _LOOKED_AT:
                rows = np.flatnonzero(codes == code)
                shape.first = shape.first if shape.keys else begin + int(rows[0])
                rows = rows[:: len(rows) // _LOOKED_AT + 1]
                shape.keys += [block[int(row)] for row in rows]
            shape.count += int(counts[code])
        if len(found) > _SHAPES:
            return []
    return list(found.values())


def _count(text: pa.Array, pattern: str) -> int:
    return int(pc.sum(pc.match_substring_regex(text, pattern)).as_py() or 0)


def _repeated(keys: Sequence[str], where: str, place: Callable[[int], str]) -> DataError:
    several = {key: count for key, count in Counter(keys).items() if count > 1}
    shortened = [key for key in several if re.match(_SHORTENED, key.strip())]
    first = next(iter(shortened or several))
    rows = [place(row) for row, key in enumerate(keys) if key == first][:2]
    if 2 * len(shortened) >= len(several):
        return DataError(
            f"{where}: numbers that a spreadsheet has shortened, so that {len(shortened)} keys stand in several rows; "
            f"{first!r} in {' and '.join(rows)}",
            hint=f"{_GIVEN_BACK} (there, format the column as text before you save it)",
        )
    count = "1 key stands" if len(several) == 1 else f"{len(several)} keys stand"
    return DataError(
        f"{where}: {count} in several rows, {sum(several.values())} rows in all; {first!r} in {' and '.join(rows)}",
        hint="a key names one row: keep one of each, choose another column, or say with `repeated` which row is used",
    )
