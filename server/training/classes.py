"""Classes of the labels: their sizes, their weights in the loss, and warnings about parts without rows of some class.

Classes are unequal if the most frequent has more than 1.5 times an equal share of the training rows: with two classes,
more than 75 %. A model that always predicts it then has a high accuracy, so AUC (two classes) or balanced accuracy
(more) is reported first. A model of a single class is always right and has learned nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from colonnade.common.config.members import Calibrate, DecideConfig
from colonnade.common.data.rows import Partition
from colonnade.common.errors import DataError
from colonnade.common.models.losses import CrossEntropy

_LIKELY = 0.1  # probability, above which a warning says that the part may lack the class
_BLOCK = 1 << 20  # rows that are counted at a time
_NAMED = 5  # most classes named in a message
_FEWEST, _FEWEST_ISOTONIC = 30, 100  # validation rows needed of each class
_HINT = (
    "look whether the keys of the other rows are written as the other members write theirs, or give more rows; "
    "`colonnade check` counts them where all tables are on one machine"
)


class LabelParts:
    """Labels by part of the rows, to find parts that lack a class or have a constant target. Keeps only counts.

    Args:
        labels: classes of all rows, int64 (rows,), or targets, floating (rows, targets).
        classes: their names, or their number; 0 in regression.
    """

    def __init__(self, labels: Tensor, partition: Partition, classes: Sequence[str] | int) -> None:
        self._names = [str(number) for number in range(classes)] if isinstance(classes, int) else [*classes]
        parts = {"training": partition.train, "validation": partition.validation, "test": partition.test}
        parts = {name: rows for name, rows in parts.items() if len(rows)}
        self._sizes = {name: len(rows) for name, rows in parts.items()}
        self.counts = dict[str, list[int]]()  # of the classes, by part
        self._constant = dict[str, list[int]]()  # targets with one number in all rows, by part
        for name, rows in parts.items():
            if labels.is_floating_point():
                same = (labels[rows] == labels[int(rows[0])]).all(dim=0)
                self._constant[name] = same.nonzero().flatten().tolist()
            else:
                none = torch.zeros(len(self._names), dtype=torch.int64, device=labels.device)
                blocks = (torch.bincount(labels[some], minlength=len(none)) for some in torch.split(rows, _BLOCK))
                self.counts[name] = sum(blocks, none).tolist()

    def warnings(self) -> Iterator[str]:
        for part, same in self._constant.items():
            if same:
                have = _rows_have(part, self._sizes[part])
                yield f"{have} one and the same number of target {same[0] + 1}: {_UNSAID}"
        for part, counts in self.counts.items():
            lost = [name for name, count in zip(self._names, counts, strict=True) if not count]
            if lost:
                what = "which the model never learns" if part == "training" else _UNSAID
                yield f"{_rows_have(part, self._sizes[part])} none of the class{_listed(lost)}, {what}"

    def few(self, decide: DecideConfig | None, calibrate: Calibrate) -> Iterator[str]:
        """Warns if a threshold or a recalibration is chosen on few validation rows.

        Raises DataError if the validation rows lack a class.
        """
        counts = self.counts.get("validation")
        if counts is not None and (key := _chosen(decide, calibrate)):
            if lost := [name for name, count in zip(self._names, counts, strict=True) if not count]:
                raise DataError(
                    f"{key}: none of the validation rows ({sum(counts)}) is of the class{_listed(lost)}: nothing "
                    "can be chosen on them",
                    hint="give more validation rows in federation.rows, or leave it out",
                    shared="the validation rows do not suit the server's settings",
                )
            yield from _few(key, calibrate, self._names, counts)

    def refuse_one(self) -> None:
        counts = self.counts.get("training")
        if counts is not None and len(self._names) > 1 and max(counts) == sum(counts):
            refuse_one_class(_rows("training", sum(counts)), self._names, counts.index(max(counts)))


_UNSAID = "so that metrics there do not cover it"


def refuse_one_class(rows: str, names: Sequence[str], only: int) -> None:
    """Raises DataError: all these rows (such as `all 58 training rows`) have class number `only`."""
    others = [name for place, name in enumerate(names) if place != only]
    raise DataError(
        f"{rows} are of the class {names[only]!r}, and none is of the class{_listed(others)}: "
        "there is nothing to learn",
        hint=_HINT,
        shared="all training rows have one class",
    )


def of_common(labels: Tensor, names: Sequence[str], sizes: Sequence[int]) -> Iterator[str]:
    """Warnings about rows whose partition is not known yet because alignment decides their order.

    Args:
        labels: classes of the common rows, int64 (rows,), or targets, floating (rows, targets).
        sizes: rows of the training, validation and test parts.

    Raises DataError if all common rows have one class, or a target is constant.
    """
    if not names:
        for place in range(labels.shape[1]):
            if bool((labels[:, place] == labels[0, place]).all()):
                raise DataError(
                    f"all {len(labels)} common rows have the number {labels[0, place].item():g} of target {place + 1}: "
                    "there is nothing to learn",
                    hint=_HINT,
                )
        return
    counts = torch.bincount(labels, minlength=len(names)).tolist()
    if counts.count(0) == len(names) - 1:
        refuse_one_class(f"all {len(labels)} common rows", names, counts.index(max(counts)))
    if lost := [name for name, count in zip(names, counts, strict=True) if not count]:
        yield f"no common row is of the class{_listed(lost)}, which the model never learns"
    for part, size in zip(("training", "validation", "test"), sizes, strict=True):
        rare = {
            name: count
            for name, count in zip(names, counts, strict=True)
            if count and size and _left_out(len(labels), count, size) > _LIKELY
        }
        if rare:
            few = ", ".join(f"{count} of {name!r}" for name, count in [*rare.items()][:_NAMED])
            yield (
                f"{len(labels)} common rows have {few}: the {size} {part} rows may have none; give more rows, or other "
                "sizes in federation.rows"
            )


def few_of_common(
    labels: Tensor, names: Sequence[str], size: int, decide: DecideConfig | None, calibrate: Calibrate
) -> Iterator[str]:
    """As `LabelParts.few`, from expected counts, for `size` validation rows whose partition is not known yet."""
    if key := _chosen(decide, calibrate):
        counts = torch.bincount(labels, minlength=len(names)).double() * size / len(labels)
        yield from _few(key, calibrate, names, counts.round().long().tolist(), "about ")


def _chosen(decide: DecideConfig | None, calibrate: Calibrate) -> str:
    """The key of the setting that is chosen on the validation rows, or ""."""
    if decide is not None and decide.by is not None:
        return "server.decide"
    return "" if calibrate == "none" else "server.calibrate"


def _few(key: str, calibrate: Calibrate, names: Sequence[str], counts: Sequence[int], about: str = "") -> Iterator[str]:
    least = _FEWEST_ISOTONIC if calibrate == "isotonic" else _FEWEST
    if few := [f"{count} of {name!r}" for name, count in zip(names, counts, strict=True) if count < least]:
        what = "an isotonic curve" if calibrate == "isotonic" else "it"
        yield (
            f"{key}: the validation rows have {about}{' and '.join(few)}; on fewer than {least} of a class {what} is "
            "chosen by chance: give more in federation.rows.validation"
        )


def _left_out(rows: int, count: int, size: int) -> float:
    """Probability that `size` of `rows` rows, drawn without replacement, include none of `count` rows."""
    if size > rows - count:
        return 0.0
    return math.exp(
        math.lgamma(rows - count + 1) + math.lgamma(rows - size + 1)
        - math.lgamma(rows - count - size + 1) - math.lgamma(rows + 1)
    )  # fmt: skip


def _rows(part: str, count: int) -> str:
    return f"all {count} {part} rows" if count > 1 else f"the one {part} row"


def _rows_have(part: str, count: int) -> str:
    return f"{_rows(part, count)} {'have' if count > 1 else 'has'}"


def _listed(names: Sequence[str]) -> str:
    more = "" if len(names) <= _NAMED else f" and {len(names) - _NAMED} others"
    return f"{'es' if len(names) > 1 else ''} {', '.join(map(repr, names[:_NAMED]))}{more}"


UNEQUAL = 1.5
"""Largest share of a class among the training rows, in multiples of an equal share, for classes to count as equal."""


@dataclass(frozen=True)
class ClassBalance:
    """Number of training rows by class, at least one class; estimates where the labels are noisy."""

    counts: Sequence[float]

    @classmethod
    def estimated(cls, counts: Tensor) -> ClassBalance:
        """From estimated counts, float64 (classes,), which noisy labels give at no further epsilon."""
        return cls(counts.clamp_min(0.0).tolist())

    @property
    def commonest(self) -> int:
        """Number of the most frequent class, the first of equals."""
        return max(range(len(self.counts)), key=self.counts.__getitem__)

    @property
    def share(self) -> float:
        """The most frequent class's share of the training rows; 0 if there are none."""
        return self.counts[self.commonest] / total if (total := sum(self.counts)) else 0.0

    @property
    def unequal(self) -> bool:
        return self.share * len(self.counts) > UNEQUAL

    @property
    def measure(self) -> str:
        """The metric that judges a model: `accuracy`; if unequal, `auc` (two classes) or `balanced_accuracy` (more)."""
        if not self.unequal:
            return "accuracy"
        return "auc" if len(self.counts) == 2 else "balanced_accuracy"

    def summary(self) -> dict[str, Any]:
        return {
            "commonest": self.commonest, "share": round(self.share, 6), "unequal": self.unequal,
            "measure": self.measure,
        }  # fmt: skip


class WeightedCrossEntropy:
    """Softmax cross-entropy times w, the weight of the row's class, positive, (classes,).

    A batch's mean is over its rows, not over their weights, so a row's share of a gradient depends on its own class
    alone in every protocol.
    """

    def __init__(self, weights: Tensor) -> None:
        self.weights, self._plain = weights, CrossEntropy()

    def value(self, logits: Tensor, targets: Tensor) -> Tensor:
        """`w_y (logsumexp(z_j) − z_jy)`, shape (b,), of class numbers int64 (b,)."""
        return self._of(targets, logits) * self._plain.value(logits, targets)

    def gradient(self, logits: Tensor, targets: Tensor) -> Tensor:
        """`w_y (softmax(z_j) − y_j)`, shape (b, c)."""
        return self._of(targets, logits).unsqueeze(-1) * self._plain.gradient(logits, targets)

    def proximal(self, centre: Tensor, targets: Tensor, rho: float) -> Tensor:
        """The minimiser of w ℓ + ρ/2 ‖z − centre‖², which is that of ℓ under the penalty ρ/w: class by class."""
        found = torch.empty_like(centre)
        for number, weight in enumerate(self.weights.tolist()):
            rows = targets == number
            if bool(rows.any()):
                found[rows] = self._plain.proximal(centre[rows], targets[rows], rho / weight)
        return found

    def mean(self, logits: Tensor, targets: Tensor) -> Tensor:
        """The batch's mean, a scalar that can be differentiated row by row."""
        each = torch.nn.functional.cross_entropy(logits, targets, reduction="none")
        return (self._of(targets, logits) * each).mean()

    def change(self, step: Tensor, logits: Tensor, targets: Tensor) -> Tensor:
        """The unweighted loss's change, float64 (b, q), times w_y."""
        return self._of(targets, logits).double().unsqueeze(-1) * self._plain.change(step, logits, targets)

    def _of(self, targets: Tensor, logits: Tensor) -> Tensor:
        return self.weights.to(logits)[targets]


def balanced(labels: Tensor, classes: int) -> Tensor:
    """n / (C n_c) of every class, float64 (classes,): equal weight per class, 1 per row on average if none is empty.

    A class without rows gets weight 1, which is never used.
    """
    counts = torch.bincount(labels.cpu(), minlength=classes).to(torch.float64)
    return torch.where(counts > 0, len(labels) / (classes * counts.clamp_min(1)), 1.0)
