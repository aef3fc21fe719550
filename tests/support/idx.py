"""Files of idx, the format of MNIST."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import numpy as np


def write_idx(folder: Path, name: str, values: np.ndarray) -> Path:
    """Writes an array of bytes, packed if the name ends in .gz."""
    folder.mkdir(parents=True, exist_ok=True)
    header = struct.pack(f">I{values.ndim}I", 0x800 + values.ndim, *values.shape)
    raw = header + values.astype(np.uint8).tobytes()
    path = folder / name
    path.write_bytes(gzip.compress(raw) if path.suffix == ".gz" else raw)
    return path
