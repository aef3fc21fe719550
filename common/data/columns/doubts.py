"""Warnings about columns that are allowed and often a mistake."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from colonnade.common.data.columns.features import Doubt, Features
from colonnade.common.data.columns.scale import TableRows

_MANY = 30  # with fewer rows all values may differ by chance


def doubts(features: Features) -> tuple[Doubt, ...]:
    """Warnings found while a table was read and in its columns as a whole; none quotes a value."""
    columns = features.values.unbind(1) if features.fields else ()
    found = [
        doubt
        for field, column in zip(features.fields, columns, strict=True)
        if not field.of and (doubt := _of(field.name, column)) is not None
    ]
    return (*features.doubts, *found)


def new_words(features: Features, train: Tensor) -> Iterator[Doubt]:
    """Warnings about words that no training row has, where these are allowed; none quotes a word."""
    words = {place: len(field.words) for place, field in enumerate(features.fields) if field.words is not None}
    everywhere, trained = (
        {place: torch.zeros(count + 1, dtype=torch.int64) for place, count in words.items()} for _ in range(2)
    )
    for rows, counts in ((TableRows(features.values), everywhere), (TableRows(features.values, train), trained)):
        for block in rows if words else ():
            for place, count in words.items():  # the last: a missing word, which is none
                counts[place] += block[:, place].nan_to_num(count).to(torch.int64).bincount(minlength=count + 1)
    for place, counted in trained.items():
        if new := int(everywhere[place][:-1][counted[:-1] == 0].sum()):
            rows_in_words = f"{new} validation or test row{'' if new == 1 else 's'}"
            what = f"has words in {rows_in_words} that no training row has: there they are of no category"
            hint = "if there are many, join rare words into one before training"
            yield Doubt(features.fields[place].name, what, hint)


def _of(name: str, column: Tensor) -> Doubt | None:
    leave = f"leave it out with `drop: [{name}]`"
    start = column[:_MANY]  # decides for most columns
    if bool(start.isnan().all()) and bool(column.isnan().all()):
        return Doubt(name, "has no value in any row", leave)
    if len(column) > 1 and _same(start) and _same(column):
        return Doubt(name, "is the same in every row, so nothing can be learnt from it", leave)
    if len(column) >= _MANY and all(_whole(part) and _all_different(part) for part in (start, column)):
        way = f"if it only says who a row is about, name it as the `key`, or {leave}"
        return Doubt(name, "is a feature, and has another whole number or word in every row", way)
    return None


def _same(column: Tensor) -> bool:
    return bool((column == column[0]).all())


def _whole(column: Tensor) -> bool:
    return bool((column == column.round()).all())


def _all_different(column: Tensor) -> bool:
    found = np.sort(column.numpy())  # torch's sort would make an order beside it
    return bool((found[1:] > found[:-1]).all())
