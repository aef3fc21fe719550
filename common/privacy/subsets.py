"""Subset selection: a label is released as a random set of classes that leans towards it.

Source: Ye and Barg, "Optimal schemes for discrete distribution estimation under locally differential privacy", 2018. A
set S of d of the k classes is drawn, e^epsilon times as likely if it contains the label y:

    P(S | y) = w^[y in S] / (w C(k - 1, d - 1) + C(k - 1, d)),    w = e^epsilon.

The largest ratio between two labels is w: epsilon-differential privacy, at delta 0. d = 1 is randomised response. The
most informative d maximises the mutual information of S and a uniform label; it is about k / (1 + e^epsilon).

Coins are tossed with integers (common/privacy/laplace.py): w is a fraction, rounded down, and epsilon is that of the
fraction.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from colonnade.common.errors import InputError
from colonnade.common.privacy.laplace import Bits, uniform_below

_BITS = 40  # of the fraction's numerator: with fewer than 2^20 classes all sums stay below 2^61
_MOST_CLASSES = 2**20


@dataclass(frozen=True)
class SubsetSelection:
    """The mechanism for a number of classes.

    Args:
        classes: k, from 2 to 2^20 - 1.
        size: d, from 1 to k - 1.
        asked: epsilon as configured; values above 27.7 = 40 log 2 count as 27.7.

    Raises InputError if a number is outside its range.
    """

    classes: int
    size: int
    asked: float

    def __post_init__(self) -> None:
        if not 2 <= self.classes < _MOST_CLASSES:
            raise InputError(f"subsets of {self.classes} classes: expected 2 to {_MOST_CLASSES - 1}")
        if not 1 <= self.size < self.classes:
            raise InputError(
                f"subsets of {self.size} of {self.classes} classes",
                hint=f"take a size of 1 to {self.classes - 1}: a set of all classes says nothing",
            )
        if not 0 < self.asked < math.inf:
            raise InputError(f"epsilon is {self.asked:g}", hint="give a number above 0")

    @classmethod
    def best(cls, classes: int, epsilon: float) -> Self:
        """The mechanism with the most informative size. Raises InputError as the constructor."""
        first = cls(classes, 1, epsilon)
        others = (cls(classes, size, epsilon) for size in range(2, classes // 2 + 1))
        return max((first, *others), key=lambda each: each.information)

    @cached_property
    def odds(self) -> tuple[int, int]:
        """w as a fraction a / b of at most e^epsilon; b is a power of 2."""
        shift = max(0, _BITS - 1 - int(self.asked / math.log(2)))
        exact = math.exp(min(self.asked, _BITS * math.log(2)))
        return max(2**shift, math.floor(exact * (1 - 2**-50) * 2**shift)), 2**shift

    @property
    def epsilon(self) -> float:
        """Epsilon of every label, at most `asked`."""
        a, b = self.odds
        return math.log1p((a - b) / b)

    @property
    def kept(self) -> float:
        """Probability that the set contains the label: w d / (w d + k - d)."""
        a, b = self.odds
        return a * self.size / (a * self.size + b * (self.classes - self.size))

    @property
    def information(self) -> float:
        """Mutual information of the set and a uniform label, in bits."""
        p, d, k = self.kept, self.size, self.classes
        without = 0.0 if p == 1 else (1 - p) * math.log2((1 - p) / (k - d))
        return math.log2(k) + p * math.log2(p / d) + without

    def select(self, labels: NDArray[np.int64], bits: Bits) -> NDArray[np.bool_]:
        """Draws a set for every label.

        Args:
            labels: class numbers, int64 (rows,).

        Returns:
            Membership, bool (rows, classes).
        """
        a, b = self.odds
        inside = uniform_below(a * self.size + b * (self.classes - self.size), len(labels), bits) < a * self.size
        others = (labels[:, None] + 1 + np.arange(self.classes - 1)) % self.classes
        drawn = _shuffled(others, self.size, bits)
        drawn[inside, -1] = labels[inside]
        found = np.zeros((len(labels), self.classes), dtype=np.bool_)
        np.put_along_axis(found, drawn, True, axis=1)
        return found

    draw_by: ClassVar[Any] = None

    def first(self, rows: int) -> Tensor:
        """All rows: none waits for a prior."""
        return torch.arange(rows)

    def draw(self, labels: Tensor, bits: Bits) -> Tensor:
        """Sets for labels int64 (rows,), as 1 and 0: float64 (rows, classes)."""
        return torch.from_numpy(self.select(labels.cpu().numpy(), bits)).to(torch.float64)

    def evidence(self, values: Tensor) -> Tensor:
        """The log-likelihood of every class, up to a constant per row: float64 (rows, classes)."""
        return values * self.epsilon

    def counts(self, values: Tensor) -> Tensor:
        """Unbiased estimates of the rows of every class: float64 (classes,)."""
        wrong = (self.size - self.kept) / (self.classes - 1)  # probability that the set contains another class
        return (values - wrong).sum(dim=0) / (self.kept - wrong)

    def summary(self) -> dict[str, Any]:
        return {"mechanism": "subset", "size": self.size}


def _shuffled(pool: NDArray[np.int64], count: int, bits: Bits) -> NDArray[np.int64]:
    """`count` distinct entries of every row, uniformly and in random order: the beginning of a shuffle by Fisher-Yates.

    Args:
        pool: (rows, entries), changed in place.
    """
    rows = np.arange(len(pool))
    for position in range(count):
        other = position + uniform_below(pool.shape[1] - position, len(pool), bits)
        pool[rows, position], pool[rows, other] = pool[rows, other].copy(), pool[rows, position].copy()
    return pool[:, :count]
