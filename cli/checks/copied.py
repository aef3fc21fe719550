"""Feature columns that say the label outright, where labels and columns are on this machine."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from colonnade.common.config.keys import KeysConfig
from colonnade.common.data.columns.features import Features
from colonnade.common.data.labels import LabelColumn

_FEWEST = 30  # rows, of which a column may say the label by chance
_FIRST = 1000  # rows that show of nearly every column that it is no copy: sorting all of them takes far longer


def copies(labels: LabelColumn, features: Features, keys: KeysConfig) -> Iterator[str]:
    """Warnings about columns that map one to one to the classes, or are equal to a number to be predicted.

    Args:
        labels, features: as they were read; rows are matched by their keys, or where neither has any by their order.
        keys: how keys are compared.
    """
    if features.values.dim() != 2 or (matched := _matched(labels, features, keys)) is None:
        return
    label, values = labels.values[matched[0]], features.values[matched[1]].double()
    if len(label) < _FEWEST or (labels.classes and len(torch.unique(label)) < 2):
        return  # of one class a column with one value is no copy
    for name, column in zip(features.names, values.unbind(1), strict=True):
        if _same(column[:_FIRST], label[:_FIRST], labels) and _same(column, label, labels):
            yield (
                f"the column {name!r} says the label of every row: it is a copy, or was made from it; leave it out "
                f"with `drop: [{name}]`"
            )


def _same(column: Tensor, label: Tensor, labels: LabelColumn) -> bool:
    """True if a column says the label of all these rows; also of rows of one class that have one value."""
    if not labels.classes:
        return bool((label == column[:, None]).all(0).any())
    return _one_to_one(column, label)


def _one_to_one(column: Tensor, label: Tensor) -> bool:
    """True if each value has one class, and each class one value."""
    if bool(column.isnan().any()):
        return False
    found, codes = torch.unique(column, return_inverse=True)
    classes = torch.unique(label)
    if len(found) != len(classes):
        return False
    return len(torch.unique(torch.stack([codes, label], dim=1), dim=0)) == len(found)


def _matched(labels: LabelColumn, features: Features, keys: KeysConfig) -> tuple[Tensor, Tensor] | None:
    """Numbers of the rows that both have, of the labels and of the columns; None where they cannot be matched."""
    if labels.ids is None or features.ids is None:
        count = len(labels.values)
        return (torch.arange(count), torch.arange(count)) if len(features.values) == count else None
    place = {key: row for row, key in enumerate(keys.normals(labels.ids))}
    mine = torch.tensor([place.get(key, -1) for key in keys.normals(features.ids)])
    theirs = (mine >= 0).nonzero().squeeze(1)
    return (mine[theirs], theirs) if len(theirs) else None
