"""Data of other installed packages' sources (common/config/data/sources.py): a form for them, and checks."""

from __future__ import annotations

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
    if features.ids is not None and len(features.ids) != len(values):
        raise SOURCES.unfit(name, f"it has {len(features.ids)} keys for {len(values)} rows")
    if not features.fields and not bool(values.isfinite().all()):
        raise SOURCES.unfit(name, "a value is missing or not finite; only tables may have missing values")
    return features


def check_label_column(name: str, labels: Any, *, numbers: bool) -> LabelColumn:
    """Refuses labels of an outside source that are of the wrong kind. Raises ConfigError."""
    if not isinstance(labels, LabelColumn) or not isinstance(labels.values, Tensor):
        raise SOURCES.unfit(name, f"its labels are {type(labels).__name__}, expected LabelColumn of a tensor")
    values, ids = labels.values, labels.ids
    dtype, ndim = (torch.float64, 2) if numbers else (torch.int64, 1)
    if values.dtype != dtype or values.ndim != ndim or not len(values):
        expected = "float64 (rows, targets)" if numbers else "int64 (rows,)"
        raise SOURCES.unfit(name, f"its labels are {values.dtype} {tuple(values.shape)}, expected {expected}")
    if ids is not None and len(ids) != len(values):
        raise SOURCES.unfit(name, f"it has {len(ids)} keys for {len(values)} labels")
    if not numbers and not 0 <= int(values.min()) <= int(values.max()) < len(labels.classes):
        said = f"its class numbers run from {int(values.min())} to {int(values.max())}"
        raise SOURCES.unfit(name, f"{said}, and it names {len(labels.classes)} classes")
    if numbers and not bool(values.isfinite().all()):
        raise SOURCES.unfit(name, "a number to be predicted is not finite")
    return labels


__getattr__ = moved(__name__, dict.fromkeys(("ColumnsConfig", "LabelsConfig"), "colonnade.common.config.data.sources"))
