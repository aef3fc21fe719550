"""Columns or labels in a safetensors file, as written by `colonnade deal` or any other program.

Columns: a tensor `values` (n, ...), uint8 or floating, one row per person, with `names` (a JSON list) in the file's
metadata. Labels: a tensor `values` (n,), int64, with `classes` (a JSON list), or numbers to be predicted, `values` (n,
targets), floating. In all of them `official_test` is the number of last rows that are the set's own test part.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from colonnade.common.data.columns.features import Features, Matrix
from colonnade.common.data.labels import LabelColumn
from colonnade.common.errors import DataError
from colonnade.common.run.json_text import parse_json

_MOST_CLASSES = 1 << 20
_MOST_DIMS = 8
_HINT = "write it with `colonnade deal`, or with safetensors as docs/models.md says"


def read_tensor_columns(path: Path) -> Matrix:
    """The columns in a file, named as it says, or column_0, column_1, .. Raises DataError."""
    values, more = _loaded(path)
    kinds = values.dtype == torch.uint8 or values.is_floating_point()
    if not 2 <= values.ndim <= _MOST_DIMS or not values.numel() or not kinds:
        raise DataError(
            f"{path}: expected `values` of (rows, columns) or more, bytes or floats, got "
            f"{tuple(values.shape)} of {values.dtype}",
            hint=_HINT,
        )
    if values.is_floating_point() and not values.isfinite().all():
        raise DataError(f"{path}: `values` has entries that are no finite numbers", hint=_HINT)
    count = math.prod(values.shape[1:])
    names = _words(path, more, "names", count) or tuple(f"column_{n}" for n in range(count))
    values = values if values.dtype == torch.uint8 else values.to(torch.float64)
    return Matrix(values, names, official_test=_official_test(path, values, more))


def read_tensor_labels(path: Path) -> LabelColumn:
    values, more = _loaded(path)
    if values.ndim != 1 or values.dtype != torch.int64 or not len(values):
        shown = f"{tuple(values.shape)} of {values.dtype}"
        raise DataError(f"{path}: expected `values` of (rows,), int64, got {shown}", hint=_HINT)
    classes = _words(path, more, "classes", None)
    if not classes:
        if values.max() >= _MOST_CLASSES:  # before a name is made for each
            said = f"the label {int(values.max())} would make as many classes"
            raise DataError(f"{path}: {said}; {_MOST_CLASSES} are the most", hint="number classes from 0")
        classes = tuple(str(n) for n in range(int(values.max()) + 1))
    if values.min() < 0 or values.max() >= len(classes):
        wrong = values[(values < 0) | (values >= len(classes))][0].item()
        raise DataError(f"{path}: the label {wrong} is none of {len(classes)} classes", hint=_HINT)
    return LabelColumn(values, classes, _official_test(path, values, more))


def read_tensor_targets(path: Path) -> LabelColumn:
    values, more = _loaded(path)
    if values.ndim != 2 or not values.is_floating_point() or not values.numel():
        shown = f"{tuple(values.shape)} of {values.dtype}"
        raise DataError(f"{path}: expected `values` of (rows, targets), floats, got {shown}", hint=_HINT)
    if not values.isfinite().all():
        raise DataError(f"{path}: `values` has entries that are no finite numbers", hint=_HINT)
    return LabelColumn(values.to(torch.float64), (), _official_test(path, values, more))


def columns_bytes(features: Features) -> bytes:
    more = {"names": json.dumps(features.names), "official_test": str(features.official_test)}
    return save({"values": features.values.contiguous()}, more)


def labels_bytes(labels: LabelColumn) -> bytes:
    more = {"classes": json.dumps(labels.classes), "official_test": str(labels.official_test)}
    return save({"values": labels.values.contiguous()}, more)


def _loaded(path: Path) -> tuple[Tensor, Mapping[str, str]]:
    try:
        with safe_open(path, "pt") as file:
            return file.get_tensor("values"), file.metadata() or {}
    except (OSError, SafetensorError) as failed:
        raise DataError(f"{path} cannot be read: {failed}", hint=_HINT) from failed


def _words(path: Path, more: Mapping[str, str], key: str, count: int | None) -> tuple[str, ...]:
    found = _parsed(path, more, key, "[]")
    if not isinstance(found, list) or not all(isinstance(word, str) for word in found):
        raise DataError(f"{path}: `{key}` is no list of words", hint=_HINT)
    if found and count is not None and len(found) != count:
        raise DataError(f"{path}: {len(found)} `{key}` for {count} columns", hint=_HINT)
    return tuple(found)


def _official_test(path: Path, values: Tensor, more: Mapping[str, str]) -> int:
    found = _parsed(path, more, "official_test", "0")
    if not isinstance(found, int) or not 0 <= found < len(values):
        raise DataError(f"{path}: `official_test` is {found!r}, of {len(values)} rows", hint=_HINT)
    return found


def _parsed(path: Path, more: Mapping[str, str], key: str, otherwise: str) -> Any:
    try:
        return parse_json(more.get(key, otherwise))
    except ValueError as failed:
        raise DataError(f"{path}: `{key}` in its metadata is no JSON", hint=_HINT) from failed
