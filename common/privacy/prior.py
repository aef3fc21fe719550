"""Subset selection over groups of classes that a prior makes: labels released with a prediction at hand.

Source: Ghazi, Golowich, Kumar, Manurangsi and Zhang, "Deep learning with label differential privacy", 2021: randomised
response with a prior, in stages (LP-2ST). There a label is released among the k classes that the prior finds likeliest.
Here the m - 1 likeliest classes are a group each, all others are one, and a random set of d groups is released that
leans towards the label's (common/privacy/subsets.py). m and d are those of the largest mutual information of set and
label under the prior; m = k is plain subset selection.

The groups depend on the prior alone. If the prior was computed without the label, such as by a model that learned from
releases of other labels, then for every set S of classes and labels y, y'

    P(S | y) / P(S | y') = w^([y in S] - [y' in S]),    w = e^epsilon,

as of plain sets, since all labels of a row share one denominator: epsilon-differential privacy, at delta 0, and log L_c
= epsilon [c in S] up to a constant.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from colonnade.common.errors import InputError
from colonnade.common.privacy.laplace import Bits
from colonnade.common.privacy.subsets import SubsetSelection

_FIRST = 10  # one training row in ten
_FLOOR = 0.02  # of the prior, spread over all classes: an early model is surer than it should be


def first_rows(rows: int) -> Tensor:
    """Positions of the training rows that are released at the start, without a prior, int64, ascending.

    The classes' sizes are estimated from these. They are the same in every run of as many rows.
    """
    order = torch.randperm(rows, generator=torch.Generator().manual_seed(0))
    return order[: -(-rows // _FIRST)].sort().values


@dataclass
class PendingLabels:
    """The true labels of training rows, each to be released when its row is first used, and never again.

    The model that predicts a row has learned from releases of other rows alone: it is a prior that was computed without
    the label.

    Args:
        rows: numbers of the training rows, int64 (m,).
        labels: their classes, int64 (m,).
        values: each label's release, float64 (m, classes), zeros for rows that wait; changed in place.
        bits: source of randomness, by the number of labels released before.
        keep: stores values; called with every new release, before it is used.
    """

    rows: Tensor
    labels: Tensor
    values: Tensor
    draw: Callable[[Tensor, Tensor, Bits], Tensor]
    bits: Callable[[int], Bits]
    keep: Callable[[Tensor], None]

    @property
    def released(self) -> Tensor:
        """Rows that have been released: bool (m,)."""
        return self.values.any(dim=1)

    def release(self, batch: Tensor, logits: Tensor) -> Tensor:
        """Releases the batch's pending labels.

        Args:
            batch: row numbers, int64 (rows,).
            logits: the model's prediction of them, (rows, classes), finite.

        Returns:
            Positions of the newly released labels among the training rows, int64 (new,).

        Raises EnvironmentFault if the disk refuses the releases; none is used then.
        """
        at, where = np.unique(self._places[batch.cpu()].numpy(), return_index=True)
        waits = (at >= 0) & ~self.released.numpy()[at]
        new = torch.from_numpy(at[waits])
        if len(new):
            prior = logits.detach().cpu().double()[torch.from_numpy(where[waits])].softmax(-1)
            prior = (1 - _FLOOR) * prior + _FLOOR / prior.shape[1]
            values = self.values.clone()
            values[new] = self.draw(self.labels[new], prior, self.bits(int(self.released.sum())))
            self.keep(values)
            self.values.copy_(values)
            self.labels[new] = -1  # nothing needs it any more
        return new

    @cached_property
    def _places(self) -> Tensor:
        """Position of every row number among the training rows; -1 of others."""
        places = torch.full((int(self.rows.max()) + 1,), -1, dtype=torch.int64)
        places[self.rows] = torch.arange(len(self.rows))
        return places


_MOST_SETS = 256  # of one m and d, so that every row's mutual information can be summed over all of them


class _Choice(NamedTuple):
    """One m and d: its mechanism over groups, and every set as 1 and 0, float64 (sets, groups)."""

    mechanism: SubsetSelection
    sets: NDArray[np.float64]


@dataclass(frozen=True)
class GroupedSubsets(SubsetSelection):
    """The mechanism for a number of classes. Without a prior it is plain subset selection, with the same epsilon."""

    def first(self, rows: int) -> Tensor:
        """As `first_rows`: all others wait for their first use."""
        return first_rows(rows)

    def draw_by(self, labels: Tensor, prior: Tensor, bits: Bits) -> Tensor:
        """Sets of classes for labels, by a prior that was computed without them.

        Args:
            labels: class numbers, int64 (rows,).
            prior: probabilities of the classes, (rows, classes), all above 0.

        Returns:
            Membership as 1 and 0, float64 (rows, classes): of every row some classes and not all.

        Raises InputError if the prior is no distribution over the classes.
        """
        likely = _normalised(prior, (len(labels), self.classes))
        order = np.argsort(-likely, axis=1, kind="stable")
        ranks, rows = np.argsort(order, axis=1), np.arange(len(likely))
        chosen = self._best(np.take_along_axis(likely, order, axis=1))
        found = np.zeros(likely.shape, dtype=np.bool_)
        for number in np.unique(chosen):
            mechanism, at = self._choices[number].mechanism, chosen == number
            groups = np.minimum(ranks[at], mechanism.classes - 1)
            own = groups[rows[: len(groups)], labels.cpu().numpy()[at]]
            found[at] = np.take_along_axis(mechanism.select(own, bits), groups, axis=1)
        return torch.from_numpy(found).to(torch.float64)

    def summary(self) -> dict[str, Any]:
        return {**super().summary(), "prior": True}

    @cached_property
    def _choices(self) -> tuple[_Choice, ...]:
        """Every m and d with few enough sets. Sets of more than half of the groups are less informative than smaller
        ones.
        """
        found = []
        for groups in range(2, self.classes + 1):
            for size in range(1, groups // 2 + 1):
                if math.comb(groups, size) > _MOST_SETS:
                    break
                sets = np.zeros((math.comb(groups, size), groups))
                for row, members in zip(sets, combinations(range(groups), size), strict=True):
                    row[list(members)] = 1.0
                found.append(_Choice(SubsetSelection(groups, size, self.asked), sets))
        return tuple(found)

    def _best(self, descending: NDArray[np.float64]) -> NDArray[np.int64]:
        """Index of the most informative choice for every row.

        Args:
            descending: the prior, the likeliest class first, (rows, classes).
        """
        found = np.stack([_information(descending, choice) for choice in self._choices])
        best: NDArray[np.int64] = found.argmax(axis=0)
        return best


def _information(descending: NDArray[np.float64], choice: _Choice) -> NDArray[np.float64]:
    """Mutual information of set and label under each row's prior, in nats, float64 (rows,)."""
    mechanism, sets = choice
    groups, size, (a, b) = mechanism.classes, mechanism.size, mechanism.odds
    of_groups = np.column_stack([descending[:, : groups - 1], descending[:, groups - 1 :].sum(axis=1)])
    w = a / b
    within, without = math.comb(groups - 1, size - 1), math.comb(groups - 1, size)
    whole = w * within + without
    chances = (1 + (w - 1) * of_groups @ sets.T) / whole
    given = (within * w * math.log(whole / w) + without * math.log(whole)) / whole
    information: NDArray[np.float64] = -(chances * np.log(chances)).sum(axis=1) - given
    return information


def _normalised(prior: Tensor, shape: tuple[int, int]) -> NDArray[np.float64]:
    values = prior.detach().cpu().to(torch.float64).numpy()
    if values.shape != shape or not (np.isfinite(values).all() and (values > 0).all()):
        raise InputError(f"a prior over classes: expected probabilities above 0, of shape {shape}")
    normalised: NDArray[np.float64] = values / values.sum(axis=1, keepdims=True)
    return normalised
