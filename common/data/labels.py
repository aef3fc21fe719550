"""Labels of the server: classes, or numbers in a regression, which are standardised on the training rows."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

import torch
from torch import Tensor

from colonnade.common.data.columns.features import Doubt
from colonnade.common.data.keys import keys_of_rows
from colonnade.common.errors import DataError

_NUMBER = re.compile(r"[+-]?(0|[1-9]\d*)?(\.\d*)?([eE][+-]\d+)?(?<=[\d.])", re.ASCII)
"""3, 3.0 and what numpy writes, 3.000e+00. Python's float() takes 0_1, digits of other scripts and inf too."""


@dataclass(frozen=True)
class LabelColumn:
    """The class of every row, or its regression targets.

    Args:
        values: (n,) int64, 0 .. C-1; in a regression (n, targets) float64, finite.
        classes: the C names; empty in a regression.
        official_test: number of last rows that are the source's own test part.
        ids: key of each row; None where sources share the order of rows.
        dropped: number of source rows left out for lack of a label.
        weights: row weights, float64 (n,), 0 or more and not all 0; None if all count alike.
        place: location of a row in its table, by its number here; None if it is unknown.
        repeated: number of labelled source rows left out in favour of another row with the same key.
    """

    values: Tensor
    classes: tuple[str, ...]
    official_test: int = 0
    ids: Sequence[str] | None = None
    dropped: int = 0
    doubts: tuple[Doubt, ...] = ()
    weights: Tensor | None = None
    place: Callable[[int], str] | None = field(default=None, compare=False, repr=False)
    repeated: int = 0

    @property
    def without(self) -> str:
        """Message about rows left out for lack of a label; "" if there are none."""
        if not self.dropped:
            return ""
        total = self.dropped + self.repeated + len(self.values)
        return f"{self.dropped} of {total} rows have no label and are left out"

    def rows(self, index: Tensor) -> LabelColumn:
        """These rows, int64 (m,), in this order; none of them counts as the source's own test part."""
        ids = keys_of_rows(self.ids, index)
        weights = None if self.weights is None else self.weights[index]
        return replace(self, values=self.values[index], official_test=0, ids=ids, weights=weights, place=None)

    def refuse_no_counts(self) -> None:
        """Raises DataError if a target is negative or, without weights, not a whole number.

        With weights targets may be rates: counts for a weight of 1.
        """
        wrong = self.values < 0
        if self.weights is None:
            wrong |= self.values != self.values.round()
        if bool(wrong.any()):
            row, target = wrong.nonzero()[0].tolist()
            where = f"server.labels, row {row + 1}" if self.place is None else self.place(row)
            raise DataError(
                f"{where}: {self.values[row, target].item():g} is no count",
                hint="with federation.loss = poisson labels are whole numbers from 0; leave it out for other numbers",
            )


def with_positive(labels: LabelColumn, positive: str, where: str) -> LabelColumn:
    """The same labels with this class as the second of two, to which AUC, gain and lift refer.

    `where` is the key of the configuration, for the DataError if there are other than two classes, or none has this
    name.
    """
    if len(labels.classes) != 2:
        raise DataError(
            f"{where} = {positive!r}: there are {len(labels.classes)} classes, and only one of two is the positive one",
            hint=f"leave {where} out",
        )
    if positive not in labels.classes:
        raise DataError(
            f"{where} = {positive!r}: the classes are {' and '.join(map(repr, labels.classes))}",
            hint="name one of them",
        )
    first, second = labels.classes
    return labels if positive == second else replace(labels, values=1 - labels.values, classes=(second, first))


def classify(words: Sequence[str], where: str) -> tuple[Tensor, tuple[str, ...]]:
    """Converts n written labels to class numbers, int64 (n,), and the names of the C classes.

    Whole numbers (`3` or `3.0`) must be 0 .. C-1 and keep their value; anything else is a name, and classes are the
    names in alphabetical order. Raises DataError if the labels are fractions, or numbers other than 0 .. C-1, or all
    the same.
    """
    place = {word: code for code, word in enumerate(dict.fromkeys(words))}
    return classify_coded(torch.tensor([place[word] for word in words]), tuple(place), where)


def classify_coded(codes: Tensor, words: Sequence[str], where: str) -> tuple[Tensor, tuple[str, ...]]:
    """`classify` of labels given by their places, whole numbers (n,), in `words`, which are in the order of rows."""
    numbers = _numbers(words)
    if numbers is None:
        classes = tuple(sorted(words))
        place = {name: number for number, name in enumerate(classes)}
        values = torch.tensor([place[word] for word in words])
    else:
        values = _whole(numbers, words, where)
        classes = tuple(str(number) for number in range(int(values.max()) + 1))
    if len(classes) < 2:
        raise DataError(f"{where} has the single class {words[0]!r}", hint="labels need two classes or more")
    return values.index_select(0, codes), classes


def hint_of_numbers(hint: str) -> str:
    """Adapts a hint about a table's number to labels, which have no `types`, `units` or `missing` and are required."""
    hint = hint.partition("; if they are words or codes")[0]
    if any(f"`{key}" in hint for key in ("types", "units", "drop", "missing")):
        hint = "write plain numbers in the column, such as 12.50, or leave the row out of the table"
    return f"{hint}; if the labels are classes, set federation.task to classification"


def doubt_of_numbers(doubt: Doubt) -> Doubt:
    """A warning about a column of numbers, adapted to labels, whose types are not declared."""
    hint = doubt.hint.partition("; if not, ")[0]
    if "`types" in hint:
        hint = "write dates as days since one of them; if they are codes, set federation.task to classification"
    return replace(doubt, hint=hint)


def _numbers(words: Sequence[str]) -> Tensor | None:
    """The numbers of all words; None if one is a name: 0_1, 007, 1e5 and nan are names."""
    if not all(map(_NUMBER.fullmatch, words)):
        return None
    return torch.tensor([float(word) for word in words], dtype=torch.float64)


def _whole(numbers: Tensor, words: Sequence[str], where: str) -> Tensor:
    broken = numbers[(numbers != numbers.round()) | numbers.isinf()]
    if len(broken):
        raise DataError(
            f"{where} holds {broken[0].item():g}, which is no class",
            hint="labels are class numbers 0, 1, 2, ... or names; for other numbers set federation.task to regression",
        )
    found = sorted({int(Decimal(word)) for word in words})  # a float or int64 may not hold all their digits
    if found != list(range(len(found))):
        shown = ", ".join(str(number) for number in found[:8]) + (", ..." if len(found) > 8 else "")
        hint = "number the classes from 0 without gaps, or write names"
        if marks := [number for number in found if number < 0 or set(str(number)) == {"9"}]:
            listed = ", ".join(map(str, marks))
            hint += f"; if it stands for a missing label, say `missing_values: [{listed}], missing: drop` of the labels"
        raise DataError(f"{where} numbers its classes {shown} instead of 0 to {len(found) - 1}", hint=hint)
    return numbers.to(torch.int64)


_FINEST = 1e-150  # the square of a smaller deviation is nearly 0, and so are errors


@dataclass(frozen=True)
class TargetScale:
    """(y - mean) / deviation of every target, and back; both in the targets' own units, float64 (targets,)."""

    mean: Tensor
    deviation: Tensor

    @classmethod
    def fit(cls, values: Tensor, train_rows: Tensor) -> TargetScale:
        """Fits on the training rows, int64 (m,), of values (n, targets). Raises DataError if a target is constant
        there, or its squares leave the range of float64.
        """
        known = values[train_rows].to(torch.float64)
        deviation = known.std(dim=0, correction=0)
        # The deviation of a constant such as 0.1 may be a rounding error above 0.
        if bool((constant := (known == known[0]).all(dim=0)).any()):
            number = int(constant.nonzero()[0])
            raise DataError(
                f"target {number + 1} is {known[0, number].item():g} in all {len(known)} training rows",
                hint="there is nothing to learn of it: name another column in server.labels",
            )
        if bool((unfit := ~((deviation > _FINEST) & (deviation < 1 / _FINEST))).any()):
            number = int(unfit.nonzero()[0])
            low, high = (edge[number].item() for edge in (known.amin(dim=0), known.amax(dim=0)))
            raise DataError(
                f"target {number + 1} is between {low:g} and {high:g} in the {len(known)} training rows, too "
                f"{'small' if deviation[number] <= _FINEST else 'large'} to be standardised",
                hint="write the column in server.labels in another unit",
            )
        return cls(known.mean(dim=0), deviation)

    def apply(self, values: Tensor) -> Tensor:
        """(rows, targets) as the model is trained on them, float32."""
        return ((values.to(torch.float64) - self.mean.to(values.device)) / self.deviation.to(values.device)).float()

    def undo(self, values: Tensor) -> Tensor:
        """Model outputs (rows, targets) in the targets' own units, float64."""
        return values.to(torch.float64) * self.deviation.to(values.device) + self.mean.to(values.device)

    def record(self) -> dict[str, Any]:
        return {"mean": self.mean.tolist(), "deviation": self.deviation.tolist()}


class CountScale(TargetScale):
    """Counts stay as they are: a model's outputs are their means."""

    def apply(self, values: Tensor) -> Tensor:
        return values.float()

    def undo(self, values: Tensor) -> Tensor:
        return values.to(torch.float64)
