"""Keys that repeat, or that other members probably write differently."""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from colonnade.common.data.columns.features import Doubt
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
    r"^\d{4}-\d\d-\d\d[T ]00:00(:00([.]0+)?)?Z?$": "are days with a time of 00:00; write the day alone (as 2024-01-31)",
    rf"\x{{fffd}}|[ÂÃ][\x{{80}}-\x{{bf}}{_CP1252}]|â€|ï»¿": (
        "have characters of a wrong encoding (as Ã¤ for ä); name the table's `encoding`, or write it again"
    ),
    f"[{_HIDDEN}]": "have invisible characters, or spaces that are not plain ones; remove them",
    r"[^\P{Nd}0-9]": "have digits of another script, which look like 0 to 9; write them as 0 to 9",
    r"""^(['`’]|=?").""": "begin with a quotation mark, as spreadsheets protect numbers; remove it",
    r"[\x{2010}-\x{201f}\x{2212}«»‹›]": "have dashes or quotation marks of word processors; write - and ' instead",
}
"""Patterns of spoilt keys, of which the first counts, with what is said of them."""

_KEPT = 15  # digits of a number, by a spreadsheet
_LONG, _ROUNDED = rf"^\d{{{_KEPT},}}\d$", rf"^[1-9]\d{{{_KEPT - 1}}}0+$"


def key_doubts(keys: KeyColumn, column: str) -> Iterator[Doubt]:
    """Warnings about keys that other members probably write differently; none quotes a key."""
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
