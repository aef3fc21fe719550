"""The privacy stage of codes: a row's code leaves as a random set of codes, the same set whenever it is asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

from colonnade.common.errors import InputError
from colonnade.common.messaging.outgoing import Released
from colonnade.common.privacy.codes.plan import DiscretePlan
from colonnade.common.privacy.laplace import Bits
from colonnade.common.privacy.subsets import SubsetSelection


class Sets(Protocol):
    """Draws of rows' codes, one a row."""

    def release(self, rows: Tensor, codes: Tensor) -> Tensor:
        """The sets of rows int64 (n,) with codes int64 (n,): membership as 1 and 0, float64 (n, k)."""


class SeededSets:
    """Draws that can be made again by anybody who knows the seed, for tests.

    Args:
        bits: rows -> their source of randomness.
    """

    def __init__(self, mechanism: SubsetSelection, bits: Callable[[Tensor], Bits]) -> None:
        self._mechanism, self._bits = mechanism, bits

    def release(self, rows: Tensor, codes: Tensor) -> Tensor:
        """As `Sets`: the same rows get the same sets."""
        return self._mechanism.draw(codes, self._bits(rows))


class CodeRelease:
    """Releases codes. Which mechanism applies depends on the row alone, not on what it is asked for.

    Args:
        training: draws of training rows.
        held_out: draws of all others.
        pay: called before a set leaves; returns the releases that are paid for.
        counts: noisy counts of what the encoder names, where the plan has them.
    """

    def __init__(
        self,
        plan: DiscretePlan,
        training: Sets,
        held_out: Sets,
        rows: int,
        pay: Callable[[], float],
        counts: Callable[[], Tensor] | None = None,
    ) -> None:
        self._plan, self._training, self._held_out, self._pay = plan, training, held_out, pay
        self._counts = counts
        self._trains = torch.zeros(rows, dtype=torch.bool)
        self._trains[plan.train] = True
        seeded = " seeded" if plan.config.seeded else ""
        self._name = f"subset {plan.training.size} of {plan.codes}, once a row{seeded}"

    def __call__(
        self,
        private: Tensor,
        *,
        evaluation: bool = False,  # noqa: ARG002  # part of the interface
        rows: Tensor | None = None,
    ) -> Released:
        """Releases codes, given as 1 in the column of each row's code; without rows the counts, drawn before.

        Args:
            private: (n, k); for the counts any int64 (classes, classes), of which nothing leaves.
            rows: the rows' numbers, int64 (n,), each once.

        Raises:
            InputError: rows are not named, or the codes are others than planned.
            CheckpointError: what was drawn before is gone.
            BudgetSpent: the encoder was not paid for.
        """
        if rows is None and self._counts is not None and self._plan.counts is not None and private.dtype == torch.int64:
            epsilon = None if self._plan.void else self._plan.epsilon(self._pay())
            return Released(self._counts().clone(), f"laplace {self._plan.counts.scale}, counts", epsilon)
        if rows is None or private.shape != (len(rows), self._plan.codes):
            raise InputError(
                f"codes {tuple(private.shape)}: expected one of {self._plan.codes} a row, and the numbers of the rows"
            )
        rows, codes = rows.cpu(), private.detach().cpu().argmax(1)
        spent, found = self._pay(), torch.zeros(private.shape, dtype=torch.float64)
        trains = self._trains[rows]
        for sets, some in ((self._training, trains), (self._held_out, ~trains)):
            if some.any():
                found[some] = sets.release(rows[some], codes[some])
        epsilon = None if self._plan.void else self._plan.epsilon(spent)
        return Released(found.to(private.device, private.dtype), self._name, epsilon)
