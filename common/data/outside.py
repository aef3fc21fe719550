"""Data of other installed packages' sources (common/config/data/sources.py): a form for them, and checks."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from colonnade.common.config.data.sources import SOURCES
from colonnade.common.data.columns.features import Features, Matrix
from colonnade.common.data.labels import LabelColumn
from colonnade.common.moved import moved

__all__ = ["Matrix", "check_columns", "check_label_column"]


def check_columns(name: str, features: Features) -> Features:
    """Refuses columns of an outside source that are of the wrong kind. Raises ConfigError."""
    values = features.values
    if not isinstance(values, Tensor) or values.dtype not in (torch.uint8, torch.float64) or values.ndim < 2:
        kind = f"{values.dtype} {tuple(values.shape)}" if isinstance(values, Tensor) else type(values).__name__
        raise SOURCES.unfit(name, f"its columns are {kind}, expected a tensor (rows, ...) of float64 or bytes")
    _check_rows(name, features, len(values))
    if not features.fields and not bool(values.isfinite().all()):
        raise SOURCES.unfit(name, "a value is missing or not finite; only tables may have missing values")
    return features


def _check_rows(name: str, found: Features | LabelColumn, rows: int) -> None:
    """Refuses keys that are no text, or not one a row, and a test part that is no number of rows."""
    ids, test = found.ids, found.official_test
    if ids is not None and (len(ids) != rows or not _texts(ids)):
        raise SOURCES.unfit(name, f"it has {len(ids)} keys for {rows} rows, expected a text for each")
    if type(test) is not int or not 0 <= test < rows:
        raise SOURCES.unfit(name, f"official_test = {test!r}: expected a number of rows below its {rows}")


def _texts(words: Iterable[object]) -> bool:
    return all(isinstance(word, str) for word in words)


def check_label_column(name: str, labels: Any, *, numbers: bool) -> LabelColumn:
    """Refuses labels of an outside source that are of the wrong kind. Raises ConfigError."""
    if not isinstance(labels, LabelColumn) or not isinstance(labels.values, Tensor):
        raise SOURCES.unfit(name, f"its labels are {type(labels).__name__}, expected LabelColumn of a tensor")
    values, weights = labels.values, labels.weights
    dtype, ndim = (torch.float64, 2) if numbers else (torch.int64, 1)
    if values.dtype != dtype or values.ndim != ndim or not len(values):
        expected = "float64 (rows, targets)" if numbers else "int64 (rows,)"
        raise SOURCES.unfit(name, f"its labels are {values.dtype} {tuple(values.shape)}, expected {expected}")
    _check_rows(name, labels, len(values))
    if len(set(labels.classes)) < len(labels.classes) or not _texts(labels.classes):
        raise SOURCES.unfit(name, "its classes' names are not all text, or not all different")
    if weights is not None and (
        not isinstance(weights, Tensor)
        or weights.dtype != torch.float64
        or weights.shape != (len(values),)
        or not 0 < float(weights.sum()) < math.inf
        or bool((weights < 0).any())
    ):
        raise SOURCES.unfit(name, "its weights are no tensor (rows,) of float64, finite, none negative and not all 0")
    if not numbers and not 0 <= int(values.min()) <= int(values.max()) < len(labels.classes):
        said = f"its class numbers run from {int(values.min())} to {int(values.max())}"
        raise SOURCES.unfit(name, f"{said}, and it names {len(labels.classes)} classes")
    if numbers and not bool(values.isfinite().all()):
        raise SOURCES.unfit(name, "a number to be predicted is not finite")
    return labels


__getattr__ = moved(__name__, dict.fromkeys(("ColumnsConfig", "LabelsConfig"), "colonnade.common.config.data.sources"))
