"""Labels whose release waits for a prediction of the model, which it then uses as its prior."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from colonnade.common.privacy.laplace import Bits

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
        values: what was released of each, float64 (m, classes); no bit is set of rows that wait. Changed in place.
        bits: source of randomness, by the number of labels that were released before.
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
        """Releases the labels of a batch that wait.

        Args:
            batch: row numbers, int64 (rows,).
            logits: the model's prediction of them, (rows, classes), finite.

        Returns:
            The positions that were released now, among the training rows, int64 (new,).

        Raises:
            EnvironmentFault: the disk refuses the releases; none is used then.
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
