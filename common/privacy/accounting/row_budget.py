"""How often each row was released, of which the worst counts."""

from __future__ import annotations

import math

from torch import Tensor

from colonnade.common.privacy.accounting.budget import Budget

_ROUNDING = 1e-6  # of a release, which sums of costs may be off


class RowBudget:
    """Counts releases row by row, and pays from a budget whenever the row that was released most often is again.

    Rows are protected each by itself, so that only the worst counts. A start that finds releases paid for counts them
    for every row.

    Args:
        budget: counts the worst row's releases, durably.
        counts: where a row's releases since then are kept, float64 (rows,), changed in place.
    """

    def __init__(self, budget: Budget, counts: Tensor) -> None:
        self._budget, self._counts = budget, counts
        self._before = budget.releases - math.ceil(float(counts.max()))

    def spend(self, rows: Tensor, cost: float = 1.0) -> float:
        """Pays for one more release of some rows and says how many the worst has, rounded up.

        Args:
            rows: int64 (n,), without repeats.
            cost: in releases, where more than an embedding is paid for.

        Raises:
            BudgetSpent: one of them would be released more often than the limit allows.
            EnvironmentFault: the payment cannot be written down.
        """
        wanted = self._counts.index_select(0, rows.cpu()) + cost
        while self._budget.releases < self._before + float(wanted.max()) - _ROUNDING:
            self._budget.spend()
        self._counts[rows.cpu()] = wanted
        return self._budget.releases
