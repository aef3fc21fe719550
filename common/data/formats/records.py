"""Streaming of fixed-size rows: only the chosen bytes of every row stay in memory."""

from __future__ import annotations

from typing import BinaryIO

import numpy as np

_CHUNK = 512


def pick(stream: BinaryIO, width: int, chosen: np.ndarray, into: np.ndarray) -> bool:
    """Copies the chosen bytes of the next rows; False if the stream ends before.

    Args:
        stream: at the beginning of a row.
        width: bytes of a row.
        chosen: their positions, int64 (k,), each below `width`.
        into: uint8 (rows, k), contiguous.
    """
    buffer = np.empty((_CHUNK if width > 1 else _CHUNK**2, width), np.uint8)
    for done in range(0, len(into), len(buffer)):
        rows = buffer[: len(into) - done]
        if stream.readinto(rows) != rows.size:  # type: ignore[attr-defined]
            return False
        # mode: with the default one `take` makes a copy.
        np.take(rows, chosen, axis=1, out=into[done : done + len(rows)], mode="clip")
    return True
