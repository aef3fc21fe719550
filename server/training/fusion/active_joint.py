"""The joint model where the server is the active party, for a fixed set of rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from colonnade.common.models.two_part import TwoPart
from colonnade.server.training.context import ServerContext
from colonnade.server.training.fusion.active import active_party

Averaged = Literal["embeddings", "logits"]


@dataclass(frozen=True)
class ActiveJoint:
    """An average over the active party and all others.

    Args:
        x: the active party's columns of the rows, float32 (rows, ...).
        count: members in the average, the active party included.
        averaged: embeddings, from whose average the active party's head predicts (VFedMH), or logits (agg_vfl).
    """

    own: TwoPart
    x: Tensor
    count: int
    averaged: Averaged

    def logits(self, parts: Sequence[Tensor]) -> Tensor:
        return self.of_sum(torch.stack(list(parts)).sum(0))

    def of_sum(self, total: Tensor) -> Tensor:
        with self.own.evaluation() as still:
            if self.averaged == "logits":
                return (still.predict(still.embed(self.x)) + total.to(self.x.device)) / self.count
            return still.predict(self.average(total))

    def average(self, total: Tensor) -> Tensor:
        """E, the average embedding, from the parties' sum: float32 (rows, width), on the device."""
        with self.own.evaluation() as still:
            return (still.embed(self.x) + total.to(self.x.device)) / self.count

    def heads(self) -> None:
        """None: the server keeps no heads for the parties."""


def active_joint(ctx: ServerContext, width: int, averaged: Averaged) -> Callable[[Tensor], ActiveJoint]:
    own, columns, count = active_party(ctx, width), ctx.columns, len(ctx.federation.names) + 1
    assert columns is not None  # required by the contract
    return lambda rows: ActiveJoint(own, columns[rows], count, averaged)
