"""A small idx set, and the real ones where COLONNADE_DATA names them."""

import os
from pathlib import Path

import numpy as np
import pytest

from tests.support.idx import write_idx


@pytest.fixture
def images() -> np.ndarray:
    """(8, 4, 3) bytes: five training and three test images."""
    return np.random.default_rng(0).integers(0, 256, (8, 4, 3), np.uint8)


@pytest.fixture
def idx_folder(tmp_path: Path, images: np.ndarray) -> Path:
    """A set of two classes, images packed, labels not."""
    folder = tmp_path / "tiny"
    labels = np.array([0, 1, 0, 1, 1, 0, 1, 0])
    write_idx(folder, "train-images-idx3-ubyte.gz", images[:5])
    write_idx(folder, "t10k-images-idx3-ubyte.gz", images[5:])
    write_idx(folder, "train-labels-idx1-ubyte", labels[:5])
    write_idx(folder, "t10k-labels-idx1-ubyte", labels[5:])
    return folder


@pytest.fixture
def data_root() -> Path:
    """The folder of the papers' data sets."""
    root = os.environ.get("COLONNADE_DATA")
    if not root:
        pytest.skip("COLONNADE_DATA is not set")
    return Path(root)
