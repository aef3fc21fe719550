"""The binary version of CIFAR-10: 3073 bytes a row, the label and 32 x 32 pixels in red, in green, in blue.

data_batch_1.bin to data_batch_5.bin are the training rows, test_batch.bin the test rows, each packed (.xz, .gz) or not.
The first training batches suffice if none between them is left out: equal numbers of rows, which members compare when
they join, are then equal rows. Only the chosen pixels are kept, as bytes.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from colonnade.common.config.data.columns import Shape
from colonnade.common.data.formats.unpack import opened, pick
from colonnade.common.data.split import Part
from colonnade.common.errors import DataError

_SHAPE: Shape = (3, 32, 32)
_ROW = 1 + math.prod(_SHAPE)  # bytes
_CLASSES = 10
_TRAINING = tuple(f"data_batch_{number}" for number in range(1, 6))
_TEST = "test_batch"
_HINT = "get the original file again"


def batch_file(folder: Path, name: str) -> Path | None:
    """The file of one batch ("data_batch_1" or "test_batch"), packed or not; None if the folder has none."""
    paths = (folder / f"{name}.bin{packed}" for packed in ("", ".xz", ".gz"))
    return next((path for path in paths if path.is_file()), None)


def holds(folder: Path) -> bool:
    return all(batch_file(folder, name) for name in (_TRAINING[0], _TEST))


class CifarImages:
    """The images of a folder: (n, 3, 32, 32), those of the test batch last. Raises DataError."""

    shape = _SHAPE

    def __init__(self, folder: Path) -> None:
        self._files = _files(folder)
        self.official_test = self._files[-1].rows

    @property
    def names(self) -> tuple[str, ...]:
        _, height, width = _SHAPE
        places = [f"{row}_{column}" for row in range(height) for column in range(width)]
        return tuple(f"{colour}_{place}" for colour in ("red", "green", "blue") for place in places)

    def ids(self) -> None:
        pass

    def read(self, part: Part) -> Tensor:
        return torch.from_numpy(_picked(self._files, 1 + part.positions.numpy())).reshape(-1, *part.shape)


def read_labels(folder: Path) -> tuple[Tensor, int]:
    """The labels of a folder, (n,) int64, and the number of test rows among them."""
    files = _files(folder)
    values = torch.from_numpy(_picked(files, np.zeros(1, np.int64))[:, 0].astype(np.int64))
    if values.max() >= _CLASSES:
        row = int((values >= _CLASSES).nonzero()[0])
        raise DataError(f"{folder}: row {row} has the label {values[row]}, of {_CLASSES} classes", hint=_HINT)
    return values, files[-1].rows


@dataclass(frozen=True)
class _File:
    path: Path
    rows: int

    @classmethod
    def of(cls, folder: Path, name: str) -> _File:
        path = batch_file(folder, name)
        if path is None:
            raise DataError(f"{folder} has no {name}.bin(.xz)", hint="put the file there")
        with opened(path) as stream:
            size = stream.seek(0, os.SEEK_END)
        if not size or size % _ROW:
            raise DataError(f"{path} has {size} bytes, which are no rows of {_ROW}", hint=_HINT)
        return cls(path, size // _ROW)

    def read(self, chosen: np.ndarray, into: np.ndarray) -> None:
        """Copies the chosen bytes (k,) of every row into (rows, k)."""
        with opened(self.path) as stream:
            if not pick(stream, _ROW, chosen, into):
                raise DataError(f"{self.path} changed while it was read", hint=_HINT)


def _files(folder: Path) -> list[_File]:
    """The available training batches, in order, and the test batch."""
    count = sum(batch_file(folder, name) is not None for name in _TRAINING)
    return [_File.of(folder, name) for name in (*_TRAINING[: max(count, 1)], _TEST)]


def _picked(files: list[_File], chosen: np.ndarray) -> np.ndarray:
    ends = np.cumsum([file.rows for file in files])
    values = np.empty((ends[-1], len(chosen)), np.uint8)
    for file, into in zip(files, np.split(values, ends[:-1]), strict=True):
        file.read(chosen, into)
    return values
