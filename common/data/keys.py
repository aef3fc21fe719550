"""Keys: identifiers of the persons or things that rows describe."""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, overload

import numpy as np

from colonnade.common.data.columns.fields import Doubt
from colonnade.common.errors import DataError

if TYPE_CHECKING:
    import pyarrow as pa
    from torch import Tensor

_FRACTION = re.compile(r"[+-]?(\d+\.\d*|\d*\.\d+)([eE][+-]?\d+)?|[+-]?\d+[eE][+-]?\d+", re.ASCII)


class KeyColumn(Sequence[str]):
    """Keys of a table as Arrow text without nulls: a million of them are 15 MB, and as Python objects 60 MB.

    It is equal to any sequence of the same words. Objects are made once, when single keys are asked for.
    """

    def __init__(self, text: pa.Array) -> None:
        self.text = text

    @cached_property
    def _words(self) -> list[str]:
        found: list[str] = self.text.to_pylist()
        return found

    @overload
    def __getitem__(self, row: int, /) -> str: ...

    @overload
    def __getitem__(self, row: slice, /) -> tuple[str, ...]: ...

    def __getitem__(self, row: int | slice, /) -> str | tuple[str, ...]:
        return tuple(self.text[row].to_pylist()) if isinstance(row, slice) else self._words[row]

    def __iter__(self) -> Iterator[str]:
        return iter(self._words)

    def __len__(self) -> int:
        return len(self.text)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, KeyColumn):
            return bool(self.text.equals(other.text))
        if isinstance(other, Sequence) and not isinstance(other, str):
            return len(self) == len(other) and self._words == list(other)
        return NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Keys of {len(self)} rows"

    def take(self, rows: np.ndarray) -> KeyColumn:
        """The keys of these rows, int64 (m,), in this order."""
        return KeyColumn(self.text.take(rows))

    @classmethod
    def of_parts(cls, ends: np.ndarray, text: np.ndarray) -> KeyColumn:
        """Keys from `parts`. Raises ValueError."""
        import pyarrow as pa  # noqa: PLC0415

        if ends.dtype != np.int64 or text.dtype != np.uint8 or not len(ends) or ends[0] or ends[-1] != len(text):
            raise ValueError("these are no keys")
        found = pa.LargeStringArray.from_buffers(len(ends) - 1, pa.py_buffer(ends), pa.py_buffer(text))
        found.validate(full=True)
        return cls(found)

    @property
    def parts(self) -> tuple[np.ndarray, np.ndarray]:
        """Where each key ends, int64 (n + 1,) with 0 for the beginning; and all of them in UTF-8, uint8."""
        import pyarrow as pa  # noqa: PLC0415

        text = pa.concat_arrays([self.text.cast(pa.large_string())])
        ends = np.frombuffer(text.buffers()[1], np.int64)[text.offset : text.offset + len(text) + 1]
        whole = np.frombuffer(text.buffers()[2] or b"", np.uint8)
        return ends - ends[0], whole[ends[0] : ends[-1]].copy()

    @property
    def unique(self) -> bool:
        """True if no key repeats. If keys ascend byte by byte, none is made a Python object."""
        import pyarrow.compute as pc  # noqa: PLC0415  # 0.2 s, where a table has been read already

        ascend = pc.all(pc.less(self.text[:-1], self.text[1:])).as_py()
        return bool(ascend) or len(set(self.text.to_pylist())) == len(self)


def keys_of_rows(keys: Sequence[str] | None, rows: Tensor) -> Sequence[str] | None:
    """The keys of some rows, int64 (m,), in their order; None where rows have none."""
    if isinstance(keys, KeyColumn):
        return keys.take(rows.numpy())
    return None if keys is None else tuple(keys[row] for row in rows.tolist())


def check_keys(keys: Sequence[str], where: str, place: Callable[[int], str]) -> None:
    """Checks that every key names one row. The error quotes keys: it is for the table's owner alone.

    Args:
        where: the table and the column, for messages.
        place: location of a row, by its number from 0.

    Raises:
        DataError: a key occurs in several rows, or all keys are written as fractions.
    """
    if not (isinstance(keys, KeyColumn) and keys.unique) and len(set(keys)) < len(keys):
        raise _repeated(keys, where, place)
    if _FRACTION.fullmatch(keys[:1][0].strip()) and all(_FRACTION.fullmatch(key.strip()) for key in keys):
        short = any(re.match(_SHORTENED, key.strip()) for key in keys)
        hint = (
            _GIVEN_BACK if short else "keys are words or whole numbers: write them without the fraction, as 17 for 17.0"
        )
        raise DataError(f"{where}: keys are fractions, such as {keys[0]}", hint=hint)


_SHORTENED = r"^[+-]?\d+([.,]\d+)?[eE]\+?\d+$"
_PLAIN = f"{string.digits}{string.ascii_letters}_-".encode()
_GIVEN_BACK = "write all digits again, from the original table: they are lost here"
_SPOILT = {
    r"^[+-]?\d+\.0*$": ("look like whole numbers that became fractions (as 17.0)", "write them without the fraction"),
    r"^[+-]?\d+([.,]\d+)?[eE]\+\d+$": ("look like numbers that a spreadsheet has shortened (as 4.02E+12)", _GIVEN_BACK),
    "^[+-]?\\d{1,3}([,'’ \u00a0\u202f]\\d{3})+$|^[+-]?\\d{1,3}(\\.\\d{3}){2,}$": (
        "have separators of thousands (as 1,234)",
        "write them with digits alone (as 1234)",
    ),
    "[\\p{Cf}\\p{Cc}\u00a0\u2007\u202f\u3000]": (
        "have invisible characters, or spaces that are not plain ones",
        "remove them: a key with them is another key",
    ),
    r"[^\P{Nd}0-9]": ("have digits of another script, which look like 0 to 9", "write them as 0 to 9"),
    r"""^(['`’]|=?").""": ("begin with a quotation mark, as spreadsheets protect numbers", "remove it"),
}


def key_doubts(keys: KeyColumn, column: str) -> Iterator[Doubt]:
    """Warnings about keys that other members probably write differently; none quotes a key."""
    import pyarrow.compute as pc  # noqa: PLC0415  # 0.2 s, where a table has been read already

    # No pattern finds anything in letters and digits alone, which most keys are.
    if not keys.parts[1].tobytes().translate(None, _PLAIN):
        return
    plain = pc.match_substring_regex(keys.text, "^[0-9A-Za-z_-]*$")
    text = pc.utf8_trim_whitespace(keys.text.filter(pc.invert(plain)))
    for pattern, (what, hint) in _SPOILT.items():
        if count := int(pc.sum(pc.match_substring_regex(text, pattern)).as_py() or 0):
            yield Doubt(column, f"is the key, and {count} of {len(keys)} keys {what}", f"{hint}; they match no others")


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
        hint="a key names one row: keep one row of each, or choose another column",
    )
