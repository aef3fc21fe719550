"""Release counts per row; the maximum determines the cost."""

from __future__ import annotations

import math

from torch import Tensor

from colonnade.common.privacy.accounting.budget import Budget

_ROUNDING = 1e-6  # of a release: tolerance of sums of costs


class RowBudget:
    """Counts releases per row, and pays from a budget when the maximum over rows increases.

    Every row is protected separately, so only the maximum counts. Releases paid for by an earlier start count for every
    row.

    Args:
        budget: durable count of the maximum over rows.
        counts: releases per row since then, float64 (rows,), changed in place.
    """

    def __init__(self, budget: Budget, counts: Tensor) -> None:
        self._budget, self._counts = budget, counts
        self._before = budget.releases - math.ceil(float(counts.max()))

    def spend(self, rows: Tensor, cost: float = 1.0) -> float:
        """Pays for one more release of some rows and returns the maximum over rows, rounded up.

        Args:
            rows: int64 (n,), without repeats.
            cost: in releases, if more than an embedding is paid for.

        Raises:
            BudgetSpent: one of them would exceed the limit.
            EnvironmentFault: the payment cannot be recorded.
        """
        wanted = self._counts.index_select(0, rows.cpu()) + cost
        while self._budget.releases < self._before + float(wanted.max()) - _ROUNDING:
            self._budget.spend()
        self._counts[rows.cpu()] = wanted
        return self._budget.releases
