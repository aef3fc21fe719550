"""Multi-view sets in MATLAB files, as used in the literature: Handwritten, MSRC-v1, Scene-15.

`X` is a cell array with one matrix a view, (n, columns) each and all of the same rows in the same order; `y` or
`Y` has the classes 1 .. C of the n rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from colonnade.common.data.columns.features import Matrix
from colonnade.common.data.labels import LabelColumn, classify
from colonnade.common.errors import DataError

_HINT = "a multi-view file holds a cell array X, one matrix a view, and y or Y, the classes 1, 2, .."


def read_view(path: Path, number: int) -> Matrix:
    """One view of a file, by its number from 1. Raises DataError."""
    views = _loaded(path).get("X")
    if not isinstance(views, np.ndarray) or views.dtype != object:
        raise DataError(f"{path} has no cell array X", hint=_HINT)
    if number > views.size:
        raise DataError(
            f"{path} has no view {number}, there are {views.size}", hint=f"give `view` a value of 1 to {views.size}"
        )
    values = views.ravel()[number - 1]
    if values.ndim != 2 or values.dtype.kind not in "iuf" or not np.isfinite(values).all():
        raise DataError(f"{path}: view {number} is no matrix of finite numbers", hint=_HINT)
    names = tuple(f"view{number}_{column}" for column in range(values.shape[1]))
    return Matrix(torch.from_numpy(np.ascontiguousarray(values, np.float64)), names)


def read_classes(path: Path) -> LabelColumn:
    """The classes of a file's rows, numbered from 0. Raises DataError if they are not 1 .. C."""
    content = _loaded(path)
    values = content.get("y", content.get("Y"))
    if not isinstance(values, np.ndarray) or values.dtype.kind not in "iuf" or values.size != max(values.shape):
        raise DataError(f"{path} has no vector y or Y", hint=_HINT)
    # `classify` expects numbers from 0 and refuses classes that do not begin at 1.
    words = [f"{value - 1:g}" for value in values.ravel().astype(float)]
    numbers, names = classify(words, f"{path}, y - 1")
    return LabelColumn(numbers, names)


def _loaded(path: Path) -> Mapping[str, Any]:
    from scipy.io import loadmat  # noqa: PLC0415  takes a third of a second, needed for these sets only

    try:
        content: Mapping[str, Any] = loadmat(path)
    except Exception as error:  # scipy's reader raises arbitrary exceptions on damaged files
        raise DataError(f"{path} cannot be read: {error}", hint="save it as MATLAB 5 to 7.2 (-v7)") from error
    return content
