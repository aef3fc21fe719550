"""Warnings about columns that are allowed and often a mistake."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from colonnade.common.data.columns.features import Features
from colonnade.common.data.columns.fields import Doubt

_MANY = 30  # with fewer rows all values may differ by chance


def doubts(features: Features) -> tuple[Doubt, ...]:
    """Warnings found while a table was read and in its columns as a whole; none quotes a value."""
    columns = features.values.unbind(1) if features.fields else ()
    found = [
        doubt
        for field, column in zip(features.fields, columns, strict=True)
        if (doubt := _of(field.name, column)) is not None
    ]
    return (*features.doubts, *found)


def new_words(features: Features, train: Tensor) -> Iterator[Doubt]:
    """Warnings about words that no training row has, where these are allowed; none quotes a word.

    Args:
        train: rows of training, int64 (m,).
    """
    for place, field in enumerate(features.fields):
        if field.words is None:
            continue
        codes = features.values[:, place]
        known = torch.zeros(len(field.words) + 1, dtype=torch.bool)
        known[codes[train].nan_to_num(len(field.words)).to(torch.int64)] = True
        known[-1] = True  # a missing word is none
        if new := int((~known[codes.nan_to_num(len(field.words)).to(torch.int64)]).sum()):
            rows = f"{new} validation or test row{'' if new == 1 else 's'}"
            what = f"has words in {rows} that no training row has: there they are of no category"
            yield Doubt(field.name, what, "if there are many, join rare words into one before training")


def _of(name: str, column: Tensor) -> Doubt | None:
    leave = f"leave it out with `drop: [{name}]`"
    start = column[:_MANY]  # decides for most columns
    if bool(start.isnan().all()) and bool(column.isnan().all()):
        return Doubt(name, "has no value in any row", leave)
    if len(column) > 1 and _same(start) and _same(column):
        return Doubt(name, "is the same in every row, of which nothing can be learnt", leave)
    if len(column) >= _MANY and all(_whole(part) and _all_different(part) for part in (start, column)):
        way = f"if it only says who a row is about, name it as the `key`, or {leave}"
        return Doubt(name, "is a feature, and has another whole number or word in every row", way)
    return None


def _same(column: Tensor) -> bool:
    return bool((column == column[0]).all())


def _whole(column: Tensor) -> bool:
    return bool((column == column.round()).all())


def _all_different(column: Tensor) -> bool:
    return bool((torch.sort(column).values.diff() > 0).all())
