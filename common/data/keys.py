"""Keys: identifiers of the persons or things that rows describe."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, overload

import numpy as np

if TYPE_CHECKING:
    import pyarrow as pa
    from torch import Tensor


_BLOCK = 8192  # keys that are objects at a time


class KeyColumn(Sequence[str]):
    """Keys of a table as Arrow text without nulls: a million take 15 MB instead of 60 MB as Python objects.

    Equal to any sequence of the same words. Objects are created on access, and not kept.
    """

    def __init__(self, text: pa.Array) -> None:
        self.text = text

    @overload
    def __getitem__(self, row: int, /) -> str: ...

    @overload
    def __getitem__(self, row: slice, /) -> tuple[str, ...]: ...

    def __getitem__(self, row: int | slice, /) -> str | tuple[str, ...]:
        if isinstance(row, slice):
            return tuple(self.text[row].to_pylist())
        found: str = self.text[row].as_py()
        return found

    def __iter__(self) -> Iterator[str]:
        for start in range(0, len(self.text), _BLOCK):
            yield from self.text[start : start + _BLOCK].to_pylist()

    def __len__(self) -> int:
        return len(self.text)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, KeyColumn):
            return bool(self.text.equals(other.text))
        if isinstance(other, Sequence) and not isinstance(other, str):
            return len(self) == len(other) and all(one == same for one, same in zip(self, other, strict=True))
        return NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Keys of {len(self)} rows"

    def take(self, rows: np.ndarray) -> KeyColumn:
        """The keys of these rows, int64 (m,), in this order."""
        return KeyColumn(self.text.take(rows))

    @property
    def ordered(self) -> KeyColumn:
        """The keys by code points, as `sorted` has them."""
        return KeyColumn(self.text.sort())

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
        text = self.text.cast("large_string")
        _, ends, whole = text.buffers()
        ends = np.frombuffer(ends or bytes(8), np.int64)[text.offset : text.offset + len(text) + 1]
        whole = np.frombuffer(whole or b"", np.uint8)
        return ends - ends[0], whole[ends[0] : ends[-1]].copy()


def keys_of_rows(keys: Sequence[str] | None, rows: Tensor) -> Sequence[str] | None:
    """The keys of some rows, int64 (m,), in their order; None where rows have none."""
    if isinstance(keys, KeyColumn):
        return keys.take(rows.numpy())
    return None if keys is None else tuple(keys[row] for row in rows.tolist())
