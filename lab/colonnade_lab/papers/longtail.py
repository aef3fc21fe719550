"""MNIST with a long tail, as in VIMADMM (Xie et al. 2024), Section VI-A5.

The first class has ten times as many rows as the last; the test rows are unchanged.
"""

from __future__ import annotations

import struct
import tempfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch

from colonnade.common.config.data.columns import AllSplit, PartyIndex
from colonnade.common.data.formats.idx import IdxImages, holds, read_labels
from colonnade.common.data.known_sets.catalogue import find
from colonnade.common.data.split import part_of

NAME = "mnist-longtail"

_SIZES = (6000, 4645, 3596, 2784, 2156, 1669, 1292, 1000, 774, 600)
_UBYTE = 0x08


def make(folder: Path) -> Path:
    """Writes the four idx files below `folder`, unless they exist.

    Rows keep their order. A class with fewer rows than the paper lists (the first has 5,923) is used whole.
    """
    made = folder / NAME
    if holds(made, "images-idx3") and holds(made, "labels-idx1"):
        return made
    source = find("mnist", Path(), lambda path: holds(path, "images-idx3"), "images in idx format")
    labels, test = read_labels(source)
    images = IdxImages(source)
    pixels = images.read(part_of(AllSplit(), images.shape, images.names, PartyIndex(0, 1))).numpy().astype(np.uint8)
    train = len(labels) - test
    kept = torch.cat([torch.nonzero(labels[:train] == c).flatten()[:size] for c, size in enumerate(_SIZES)])
    rows = kept.sort().values.numpy()
    files = {}
    for part, index in (("train", rows), ("t10k", np.arange(train, len(labels)))):
        files[f"{part}-images-idx3-ubyte"] = pixels[index].reshape(len(index), *images.shape)
        files[f"{part}-labels-idx1-ubyte"] = labels.numpy()[index].astype(np.uint8)
    _write(made, files)
    return made


def _write(made: Path, files: Mapping[str, np.ndarray]) -> None:
    """Writes each file atomically: several runs make them concurrently, and any may be killed."""
    made.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=made, prefix=".making-") as scratch:
        for name, values in files.items():
            header = struct.pack(f">BBBB{values.ndim}I", 0, 0, _UBYTE, values.ndim, *values.shape)
            whole = Path(scratch) / name
            whole.write_bytes(header + values.tobytes())
            whole.replace(made / name)
