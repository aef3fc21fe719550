"""Output of `colonnade check` about a party's columns, for the table's owner alone.

It shows every column's inferred type with a few values, columns that leak the label, settings without a good default,
and where to begin (docs/defaults.md).

A column leaks the label if it maps one to one to it. It probably leaks it, as if recorded after the outcome, if alone
it predicts the class of nearly all rows: by missing or present values, by a threshold, by its word or its one of at
most 20 numbers. Nearly all: the errors are at most 2 % of the smallest class. With more than two classes thresholds and
words must predict all, gaps one. A column leaks a number if the ranks agree (Spearman's correlation .999), or if its
gaps have all numbers above, or below, other rows'.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

import numpy as np
import torch
from torch import Tensor

from colonnade.common.config.alignment import KeysConfig
from colonnade.common.config.federation import FederationConfig
from colonnade.common.config.models import MlpConfig, ModelConfig
from colonnade.common.contracts.registry import CONTRACTS
from colonnade.common.contracts.schedule import Schedule
from colonnade.common.data.columns.features import Features, TypedColumn
from colonnade.common.data.columns.scale import Columns, varied
from colonnade.common.data.labels import LabelColumn
from colonnade.common.text import escaped
from colonnade.reports.words import counted

_EXAMPLES, _LONGEST = 3, 24  # values of a column, and characters of one
_MOST = 100  # columns
_BLOCK = 1000  # rows at a time
_KINDS = {
    "": "number",
    "number": "number",
    "percent": "percent, as a fraction of 1",
    "boolean": "boolean, as 0 and 1",
}


def described(features: Features, types: Mapping[str, str]) -> Iterator[str]:
    """A line for each typed column: name, type, missing values, examples."""
    if not features.fields:
        return
    for name, width in Counter(field.of for field in features.fields if field.of).items():
        yield f"{name!r}: {types[name]}, as {width} numbers that the tower makes of it"
    own = [place for place, field in enumerate(features.fields) if not field.of]
    for place in own[:_MOST]:
        field, column = features.fields[place], features.values[:, place]
        missing = int(column.isnan().sum())
        absent = f"{missing} missing" if missing else "none missing"
        shown = ", ".join(_examples(field, column))
        yield f"{field.name!r}: {_kind(field, types.get(field.name, ''))}, {absent}{f'; as {shown}' if shown else ''}"
    if (more := len(own) - _MOST) > 0:
        words = sum(features.fields[place].words is not None for place in own[_MOST:])
        yield f"and {more} columns more, of which {words} are categories"


def _kind(field: TypedColumn, declared: str) -> str:
    if field.words is not None:
        return f"category of {len(field.words)} words"
    return _KINDS.get(declared, "date, in days since 1970")


def _examples(field: TypedColumn, column: Tensor) -> list[str]:
    """The first distinct values."""
    found: dict[float, None] = {}
    for start in range(0, len(column), _BLOCK):
        part = column[start : start + _BLOCK]
        for value in part[~part.isnan()].tolist():
            found.setdefault(value)
            if len(found) == _EXAMPLES:
                break
        if len(found) == _EXAMPLES:
            break
    if field.words is None:
        return [f"{value:.6g}" for value in found]
    words = (field.words[int(value)] for value in found)
    return [repr(escaped(word if len(word) <= _LONGEST else f"{word[:_LONGEST]}...", 200)) for word in words]


_FEWEST = 30  # rows, of which a column may say the label by chance
_WRONG = 0.02  # of the rows of the smallest class
_VALUES = 20  # of a column that is looked at value by value
_RARE = 5  # rows of a value, below which it says nothing of others
_RANKS = 0.999
_LOOKED_AT = 100_000  # rows
_FIRST = 1000  # rows that show of nearly every column that it is no copy: sorting all of them takes far longer


def copies(labels: LabelColumn, features: Features, keys: KeysConfig) -> Iterator[str]:
    """Warnings about columns that give all or nearly all labels.

    Args:
        labels, features: as read; rows are matched by keys, or by order if neither has any.
        keys: how keys are compared.
    """
    if features.values.dim() != 2 or (matched := _matched(labels, features, keys)) is None:
        return
    label, values = labels.values[matched[0]], features.values[matched[1]].double()
    if len(label) < _FEWEST or (labels.classes and len(torch.unique(label)) < 2):
        return  # of one class a column with one value is no copy
    tells = _tells_class if labels.classes else _tells_number
    made = {field.name for field in features.fields if field.of}  # which cannot be left out alone
    for name, column in zip(features.names, values.unbind(1), strict=True):
        if name in made:
            continue
        if _same(column[:_FIRST], label[:_FIRST], labels) and _same(column, label, labels):
            yield (
                f"the column {name!r} says the label of every row: it is a copy, or was made from it; leave it out "
                f"with `drop: [{name}]`"
            )
        elif how := tells(column[:_LOOKED_AT].numpy(), label[:_LOOKED_AT].numpy()):
            yield (
                f"the column {name!r} gives the label away: {how}; if it was recorded after the outcome, leave it out "
                f"with `drop: [{name}]`"
            )


def _tells_class(column: np.ndarray, label: np.ndarray) -> str:
    """The property of a column that predicts nearly all classes; "" if none does.

    Args:
        column: float64 (n,), NaN if missing; numbers, or codes of words.
        label: int64 (n,).
    """
    sizes = np.bincount(label)
    sizes = sizes[sizes > 0]
    if len(sizes) < 2 or sizes.min() < _RARE:
        return ""
    allowed, missing = _WRONG * sizes.min(), np.isnan(column)
    if missing.any() and not missing.all():
        for one in np.unique(label):
            if min((missing != (label == one)).sum(), (missing == (label == one)).sum()) <= allowed:
                return f"it is missing where the label is of one class, and nowhere else ({int(missing.sum())} rows)"
    wrong = len(label[missing]) - np.bincount(label[missing], minlength=1).max()
    return _tells_by_value(column[~missing], label[~missing], allowed - wrong, classes=len(sizes))


def _tells_by_value(column: np.ndarray, label: np.ndarray, allowed: float, *, classes: int) -> str:
    """As `_tells_class`, for rows with a value, with at most `allowed` errors."""
    values, codes, counts = np.unique(column, return_inverse=True, return_counts=True)
    if len(values) < 2:
        return ""
    if len(values) <= _VALUES:
        table = np.zeros((len(values), int(label.max()) + 1), np.int64)
        np.add.at(table, (codes, label), 1)
        right = table.max(1)[counts >= _RARE].sum()
        return f"each of its {len(values)} values has rows of one class" if len(label) - right <= allowed else ""
    if classes == 2:
        last = label == label.max()
        second = np.cumsum(np.bincount(codes, last))[:-1]  # of the rows up to each value
        first = np.cumsum(counts)[:-1] - second
        wrong = np.minimum(second + (~last).sum() - first, first + last.sum() - second).min()
        return "a threshold parts the classes" if wrong <= allowed else ""
    return ""


def _tells_number(column: np.ndarray, targets: np.ndarray) -> str:
    """As `_tells_class`, for numbers to predict, (n, targets)."""
    missing = np.isnan(column)
    for target in targets.T:
        ends = [target[missing], target[~missing]]
        if min(map(len, ends)) >= _RARE and (ends[0].min() > ends[1].max() or ends[0].max() < ends[1].min()):
            return "it is missing where the number is large, or small, and nowhere else"
        if len(np.unique(ends[1])) > _VALUES and len(np.unique(column[~missing])) > _VALUES:
            ranks = [np.unique(of, return_inverse=True)[1] for of in (column[~missing], ends[1])]
            if abs(np.corrcoef(ranks[0], ranks[1])[0, 1]) >= _RANKS:
                return "its values rise, or fall, as the number to be predicted does"
    return ""


def _same(column: Tensor, label: Tensor, labels: LabelColumn) -> bool:
    """True if a column determines the label of all these rows; also if they have one class and one value."""
    if not labels.classes:
        return bool((label == column[:, None]).all(0).any())
    if bool(column.isnan().any()):
        return False
    found, codes = torch.unique(column, return_inverse=True)
    classes = torch.unique(label)
    if len(found) != len(classes):
        return False
    return len(torch.unique(torch.stack([codes, label], dim=1), dim=0)) == len(found)


def _matched(labels: LabelColumn, features: Features, keys: KeysConfig) -> tuple[Tensor, Tensor] | None:
    """Indices of common rows in the labels and in the columns; None if they cannot be matched."""
    if labels.ids is None or features.ids is None:
        count = len(labels.values)
        return (torch.arange(count), torch.arange(count)) if len(features.values) == count else None
    place = {key: row for row, key in enumerate(keys.normals(labels.ids))}
    mine = torch.tensor([place.get(key, -1) for key in keys.normals(features.ids)])
    theirs = (mine >= 0).nonzero().squeeze(1)
    return (mine[theirs], theirs) if len(theirs) else None


_DEVIATIONS = 20  # beyond which the rest of a standardised column is squeezed together
_STEPS = 100
_TABLE, _COLOUR = 2, 4  # axes of columns, and of images with channels


def hints_of_party(columns: Columns, rows: Tensor, model: ModelConfig) -> Iterator[str]:
    """Properties of a party's model and columns that have no good default.

    Args:
        columns: the party's, scaled.
        rows: training rows, int64 (m,).
    """
    if len(columns.shape) == _COLOUR and isinstance(model, MlpConfig):
        yield "hint: rows are images in colour, and the model is an mlp; `model: cnn` suits them"
    if len(columns.shape) != _TABLE:
        return
    values = columns[rows[:_LOOKED_AT]]
    if far := sum(bool(column.abs().amax() > _DEVIATIONS) and varied(column) for column in values.unbind(1)):
        yield (
            f"hint: {far} of {values.shape[1]} columns reach beyond {_DEVIATIONS} deviations, so that their other "
            "values look alike; try `data.scale: auto`, or take their logarithms in the table"
        )


def hints_of_federation(federation: FederationConfig, schedule: Schedule) -> Iterator[str]:
    """Properties of the protocol and the run's length that have no good default."""
    protocol = federation.protocol
    if CONTRACTS[protocol.name].exchange.one_number:
        yield (
            f"hint: {protocol.name} learns from one number a batch, so that it needs many epochs, and rates of its "
            "own; begin with `colonnade tune`"
        )
    if schedule.rounds < _STEPS and not protocol.few_rounds:
        yield (
            f"hint: only {counted(schedule.rounds, 'round')}; take {_STEPS} or more, by a smaller federation.batch or "
            "more federation.epochs"
        )
