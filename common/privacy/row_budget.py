"""How often each row was released, of which the worst counts."""

from __future__ import annotations

import torch
from torch import Tensor

from common.privacy.budget import Budget


class RowBudget:
    """Counts releases row by row, and pays from a budget whenever the row that was released most often is again.

    Rows are protected each by itself, so that only the worst counts. A start that finds releases paid for counts them
    for every row.

    Args:
        budget: counts the worst row's releases, durably.
        counts: where a row's releases since then are kept, int32 (rows,), changed in place.
    """

    def __init__(self, budget: Budget, counts: Tensor) -> None:
        self._budget, self._counts = budget, counts
        self._before = budget.releases - int(counts.max())

    def spend(self, rows: Tensor) -> float:
        """Pays for one more release of these rows, int64 (n,) without repeats, and says how many the worst has.

        Raises:
            BudgetSpent: one of them would be released more often than the limit allows.
            EnvironmentFault: the payment cannot be written down.
        """
        wanted = self._counts.index_select(0, rows.cpu()) + 1
        while self._budget.releases < self._before + int(wanted.max()):
            self._budget.spend()
        self._counts[rows.cpu()] = wanted.to(torch.int32)
        return self._budget.releases
