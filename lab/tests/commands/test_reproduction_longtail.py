"""A paper's long-tailed variant of MNIST, made by leaving images out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from colonnade.common.config.data.columns import AllSplit, PartyIndex
from colonnade.common.data.formats.idx import IdxImages, read_labels
from colonnade.common.data.split import part_of
from colonnade_lab.papers import running
from tests.support.idx import write_idx


def test_the_long_tail_takes_as_many_of_each_class_as_the_paper_lists(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLONNADE_DATA", str(tmp_path))
    _seven_thousand(tmp_path / "mnist")
    made = running.make(tmp_path)
    labels, test = read_labels(made)
    assert labels[: len(labels) - test].bincount().tolist() == [700] * 9 + [600]
    assert test == 70
    images = IdxImages(made)
    pixels = images.read(part_of(AllSplit(), images.shape, images.names, PartyIndex(0, 1)))
    assert torch.equal(pixels.reshape(-1, 4)[:, 0].long(), labels * 20)  # every image kept its label
    assert len(list(made.iterdir())) == 4


def test_a_long_tail_that_was_not_finished_is_not_taken_for_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLONNADE_DATA", str(tmp_path))
    _seven_thousand(tmp_path / "mnist")
    write = Path.write_bytes

    def fill(path: Path, content: bytes) -> int:
        if path.name != "t10k-labels-idx1-ubyte":
            return write(path, content)
        write(path, content[:20])
        raise OSError("the disk is full")

    with monkeypatch.context() as full, pytest.raises(OSError, match="full"):
        full.setattr(Path, "write_bytes", fill)
        running.make(tmp_path)
    labels, test = read_labels(running.make(tmp_path))
    assert (len(labels), test) == (6970, 70)


def _seven_thousand(folder: Path) -> None:
    """Images of 2 x 2, 700 of each class, of which every hundredth is a test image too."""
    classes = np.repeat(np.arange(10, dtype=np.uint8), 700)
    for part, index in (("train", np.arange(7000)), ("t10k", np.arange(0, 7000, 100))):
        pixels = np.repeat(classes[index] * 20, 4).reshape(-1, 2, 2)
        write_idx(folder, f"{part}-images-idx3-ubyte", pixels)
        write_idx(folder, f"{part}-labels-idx1-ubyte", classes[index])
