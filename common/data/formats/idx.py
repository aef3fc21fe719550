"""The idx format of MNIST and similar sets: a big-endian header, then bytes; usually in gzip.

Four files: train-images-idx3-ubyte, train-labels-idx1-ubyte and the same two with t10k. Rows are the training rows
followed by the test rows. A party needs the images only and the server the labels only; if both are in the folder,
their counts must agree. Images stream through one small buffer: only the chosen pixels stay, as bytes.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from colonnade.common.config.data.columns import Shape
from colonnade.common.data.formats.unpack import opened, pick
from colonnade.common.data.split import Part
from colonnade.common.errors import DataError

Kind = Literal["images-idx3", "labels-idx1"]

# The third byte is the type (unsigned byte), the fourth the number of sizes that follow.
_MAGIC: dict[Kind, int] = {"images-idx3": 0x00000803, "labels-idx1": 0x00000801}
_SETS = ("train", "t10k")
_DEFLATED = 1100  # gzip makes nothing smaller than by this factor


def idx_file(folder: Path, part: str, kind: Kind) -> Path | None:
    """The file of one part ("train" or "t10k") and kind, packed or not; None if the folder has none."""
    stem = f"{part}-{kind}-ubyte"
    return next((path for path in (folder / stem, folder / f"{stem}.gz") if path.is_file()), None)


def holds(folder: Path, kind: Kind) -> bool:
    return all(idx_file(folder, part, kind) for part in _SETS)


class IdxImages:
    """The images of a folder that `holds` them. Raises DataError if headers or counts do not fit."""

    def __init__(self, folder: Path) -> None:
        self._files = [_IdxFile.of(folder, part, "images-idx3") for part in _SETS]
        train, test = self._files
        if train.sizes[1:] != test.sizes[1:]:
            raise DataError(
                f"{folder}: training images have the size {train.sizes[1:]}, test images {test.sizes[1:]}",
                hint="put the four files of one set into the folder",
            )
        _check_counts(folder, self._files, "labels-idx1")
        self.shape: Shape = train.sizes[1:]
        self.official_test = test.sizes[0]

    @property
    def names(self) -> tuple[str, ...]:
        height, width = self.shape
        return tuple(f"pixel_{row}_{column}" for row in range(height) for column in range(width))

    def ids(self) -> None:
        pass

    def read(self, part: Part) -> Tensor:
        """(n, *part.shape) uint8. Raises DataError if a file is longer or shorter than its header says."""
        chosen = part.positions.numpy()
        rows = [file.sizes[0] for file in self._files]
        values = np.empty((sum(rows), len(chosen)), np.uint8)
        for file, into in zip(self._files, np.split(values, [rows[0]]), strict=True):
            file.read(chosen, into)
        return torch.from_numpy(values).reshape(-1, *part.shape)


def read_labels(folder: Path) -> tuple[Tensor, int]:
    """The labels of a folder that `holds` them, (n,) int64, and the number of test rows among them."""
    files = [_IdxFile.of(folder, part, "labels-idx1") for part in _SETS]
    _check_counts(folder, files, "images-idx3")
    values = np.empty((sum(file.sizes[0] for file in files), 1), np.uint8)
    for file, into in zip(files, np.split(values, [files[0].sizes[0]]), strict=True):
        file.read(np.zeros(1, np.int64), into)
    return torch.from_numpy(values[:, 0].astype(np.int64)), files[1].sizes[0]


@dataclass(frozen=True)
class _IdxFile:
    """One idx file. `sizes` is (rows,) for labels and (rows, height, width) for images."""

    path: Path
    sizes: Shape

    @classmethod
    def of(cls, folder: Path, part: str, kind: Kind) -> _IdxFile:
        path = idx_file(folder, part, kind)
        if path is None:
            raise DataError(f"{folder} has no {part}-{kind}-ubyte(.gz)", hint="put the file there")
        magic = _MAGIC[kind].to_bytes(4)
        with opened(path) as stream:
            header = stream.read(4 + 4 * magic[3])
        if header[:4] != magic or len(header) != 4 + 4 * magic[3]:
            raise DataError(
                f"{path} is no idx file of {kind}: its header is {header.hex() or 'empty'}",
                hint="get the original file again",
            )
        found = cls(path, struct.unpack(f">4x{magic[3]}I", header))
        # Before memory is taken for the rows that a damaged header announces.
        if math.prod(found.sizes) > path.stat().st_size * (_DEFLATED if path.suffix == ".gz" else 1):
            raise found._wrong_length("shorter")
        return found

    def read(self, chosen: np.ndarray, into: np.ndarray) -> None:
        """Copies the chosen bytes (k,) of every row into (rows, k)."""
        with opened(self.path) as stream:
            stream.read(4 + 4 * len(self.sizes))
            if not pick(stream, math.prod(self.sizes[1:]), chosen, into):
                raise self._wrong_length("shorter")
            if stream.read(1):
                raise self._wrong_length("longer")

    def _wrong_length(self, how: str) -> DataError:
        return DataError(
            f"{self.path} is {how} than the {self.sizes[0]} rows that its header announces",
            hint="get the original file again",
        )


def _check_counts(folder: Path, files: list[_IdxFile], other: Kind) -> None:
    for file, part in zip(files, _SETS, strict=True):
        if idx_file(folder, part, other) is None:
            continue  # a party has no labels, the server no images
        counterpart = _IdxFile.of(folder, part, other)
        if counterpart.sizes[0] != file.sizes[0]:
            raise DataError(
                f"{file.path.name} has {file.sizes[0]} rows, {counterpart.path.name} beside it {counterpart.sizes[0]}",
                hint=f"put the four files of one set into {folder}",
            )
