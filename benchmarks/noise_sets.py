"""Noise in the file formats and sizes of MNIST and CIFAR-10, for timings on a machine that has neither."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from colonnade.common.data.known_sets.places import VARIABLE

_DRAWS = np.random.default_rng(0)


def write(folder: Path) -> None:
    """Writes mnist/ (60,000 and 10,000 images) and cifar10/ (10,000 each), and names the folder in the environment."""
    for name, rows in (("train", 60_000), ("t10k", 10_000)):
        _idx(folder / "mnist" / f"{name}-images-idx3-ubyte", _DRAWS.integers(256, size=(rows, 28, 28), dtype=np.uint8))
        _idx(folder / "mnist" / f"{name}-labels-idx1-ubyte", _DRAWS.integers(10, size=rows, dtype=np.uint8))
    for name in ("data_batch_1", "test_batch"):
        rows = _DRAWS.integers(256, size=(10_000, 3073), dtype=np.uint8)
        rows[:, 0] %= 10
        path = folder / "cifar10" / f"{name}.bin"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(rows.tobytes())
    os.environ[VARIABLE] = str(folder)


def _idx(path: Path, values: np.ndarray) -> None:
    """The magic number (unsigned bytes, number of dimensions), the sizes, the values."""
    path.parent.mkdir(parents=True, exist_ok=True)
    sizes = np.array(values.shape, dtype=">u4").tobytes()
    path.write_bytes(bytes([0, 0, 8, values.ndim]) + sizes + values.tobytes())
