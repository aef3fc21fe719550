"""Plain spelling of words that were typed, encoded or exported in another way.

All functions take one word: call them for distinct words, and not for every row.
"""

from __future__ import annotations

import html
import re
import unicodedata
from collections.abc import Iterator
from functools import cache, lru_cache
from itertools import permutations

_LOOKALIKE = str.maketrans(
    "АВЕКМНОРСТУХІЈЅаеорсухіјѕΑΒΕΖΗΙΚΜΝΟΡΤΥΧο",  # Cyrillic and Greek
    "ABEKMHOPCTYXIJSaeopcyxijsABEZHIKMNOPTYXo",
)
_SIGNS = {
    **dict.fromkeys("‐‑‒–—―−", "-"),
    **dict.fromkeys("‘’‚‛`´", "'"),
    **dict.fromkeys("“”„‟«»", '"'),
    "٫": ".", "·": ".", "٬": ",",
}  # fmt: skip
_WITHOUT_GLYPH = {"Cf", "Cc", "Zl", "Zp"}
_HIDDEN = frozenset("\u034f\u115f\u1160\u2800\u3164\uffa0") | {chr(0xFE00 + n) for n in range(16)}
_OTHER_NUMBERS = ("<super>", "<sub>", "<fraction>", "<circle>")  # NFKC makes 52 of 5²
_PAGES = ("cp1252", "cp850", "mac_roman")
_WRONGLY = (*((page, "utf-8") for page in (*_PAGES, "latin-1")), *permutations(_PAGES, 2))
_RUNS = re.compile(r"[\x00-\x7f]+|[^\x00-\x7f]+")

_PROTECTED = re.compile(r"""=?(["'])(.*?)\1?""")
_MONTHS = (
    "jan gen ene", "feb fev", "mar maa mrt", "apr avr abr", "may mai mei mag maio", "jun juin giu", "jul juil lug",
    "aug aou ago", "sep set", "oct okt ott out", "nov", "dec dez dic",
)  # fmt: skip
"""Beginnings of the months' names in English, German, French, Spanish, Italian, Dutch and Portuguese."""
_MONTH = {begin: month for month, begins in enumerate(_MONTHS, 1) for begin in begins.split()}
_NAME = rf"(?P<month>{'|'.join(sorted(_MONTH, key=len, reverse=True))})[a-z]*\.?"
_DAY, _YEAR = r"(?P<day>\d{1,2})(?:\.|st|nd|rd|th|er)?", r"(?P<year>\d{4}|\d{2})"
_OF = r"(?:\s*[ /.,-]\s*(?:de |del |of )?)"
_SPOKEN = tuple(
    re.compile(rf"(?:[a-z]{{2,10}}\.?,? )?{form}(?P<time>[ ,T]+\d.*)?", re.ASCII)
    for form in (
        rf"{_DAY}{_OF}?{_NAME}{_OF}?{_YEAR}",
        rf"{_NAME} {_DAY}{_OF}{_YEAR}",
        rf"{_NAME} +{_DAY} [\d:]+ {_YEAR}",
    )
)
_REWRITTEN = (
    (r"^([+-])\s+", r"\1"),
    (r"^\((\d.*)\)$|^(\d.*\d)-$", r"-\1\2"),  # of accountants
    (r"[.,]-{1,3}$", ""),  # 5.- and 5,--
    (r"(?<=\d)_(?=\d)", ""),
    (r"(?<=[\d.])[dD](?=[+-]\d)", "e"),  # of Fortran
    (r"^0[xX][0-9a-fA-F]+$|^0[bB][01]+$|^0[oO][0-7]+$", "0"),  # which number, does not matter
    (r"^(\d\d?)((?:,\d\d)+),(\d{3}(?:\.\d+)?)$", lambda found: found[1] + found[2].replace(",", "") + found[3]),
    (r"(?i)(?<=\d)\s?[ap]\.?m\.?$", ""),  # of a time
)  # fmt: skip


def plain(word: str) -> str:
    """The word with composed letters, plain spaces, signs and digits, and without characters that show nothing."""
    return word if word.isascii() else "".join(map(_plain, unicodedata.normalize("NFC", word)))


def latin(word: str) -> str:
    """The word with Latin letters for Cyrillic and Greek ones that look like them."""
    return word if word.isascii() else word.translate(_LOOKALIKE)


def plain_value(word: str) -> str:
    """A number or date as it is written plainly; other words in some form."""
    found = plain(word).strip()
    if protected := _PROTECTED.fullmatch(found):
        found = protected[2].strip()
    if any(char.isalpha() for char in found) and (date := _date(found)):
        return date
    for pattern, instead in _REWRITTEN:
        found = re.sub(pattern, instead, found)
    return found


def in_other_encodings(word: str) -> Iterator[str]:
    """What the word may have been before its bytes were read in a wrong encoding."""
    if word.isascii():
        return
    runs = _RUNS.findall(word)
    for read, written in _WRONGLY:
        if all(parts := [run if run.isascii() else _reread(run, read, written) for run in runs]):
            yield "".join(parts)


@lru_cache(maxsize=4096)
def _reread(run: str, read: str, written: str) -> str:
    """The characters with these bytes in another encoding; "" if there are none, or the same."""
    try:
        found = run.encode(read).decode(written)
    except UnicodeError:
        return ""
    return "" if found == run else found


def unescaped(word: str) -> str:
    """The word with characters for the references of HTML: ë for &euml;."""
    return html.unescape(word) if "&" in word else word


@cache
def _plain(char: str) -> str:
    if unicodedata.category(char) in _WITHOUT_GLYPH or char in _HIDDEN:
        return ""
    if char in _SIGNS or unicodedata.category(char) == "Zs":
        return _SIGNS.get(char, " ")
    if (digit := unicodedata.decimal(char, None)) is not None:
        return str(digit)
    return char if unicodedata.decomposition(char).startswith(_OTHER_NUMBERS) else unicodedata.normalize("NFKC", char)


def _date(word: str) -> str:
    """ISO 8601 for a date with a month's name, "" for other words."""
    bare = "".join(char for char in unicodedata.normalize("NFD", word.casefold()) if not unicodedata.combining(char))
    for form in _SPOKEN:
        if found := form.fullmatch(bare):
            year, day = found["year"], int(found["day"])
            return f"{year if len(year) == 4 else f'20{year}'}-{_MONTH[found['month']]:02}-{day:02}"
    return ""
