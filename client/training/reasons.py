"""Reasons of a score that is a sum over columns: what each column adds, against the mean or the best.

In a sum the Shapley values of columns are exact, and need no sampling: against the mean over the training rows, that of
a column is what it adds at the row less what it adds on average (Lundberg and Lee 2017, corollary 1).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Reason = tuple[str, float]
Reference = Literal["mean", "best"]

REASONS = 4


def lowest(parts: Floats, names: Sequence[str], most: int) -> list[list[Reason]]:
    """For each row at most `most` columns that lower its score, with what they lower it by, the lowest first.

    `parts` is what each column adds, (rows, columns).
    """
    order = np.argsort(parts, axis=1, kind="stable")[:, :most]
    return [
        [(names[place], float(line[place])) for place in places if line[place] < 0]
        for line, places in zip(parts, order, strict=True)
    ]
