"""Heads: embeddings -> one score a class."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Annotated, Literal

import torch
from pydantic import BaseModel, ConfigDict, Field, PositiveInt
from torch import Tensor, nn


class LinearHeadConfig(BaseModel):
    """One linear layer, without a bias as the heads of VIMADMM (its W_k)."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Literal["linear"] = "linear"
    bias: bool = False

    def module(self, inputs: int, classes: int) -> nn.Module:
        """The head: (batch, inputs) -> (batch, classes)."""
        return nn.Linear(inputs, classes, bias=self.bias)


class MlpHeadConfig(BaseModel):
    """`layers` linear layers with ReLU and dropout between: the non-linear head of VIMADMM, Section V-B2.

    The paper has two layers (three for NUS-WIDE) and a dropout of .25; it gives no width.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Literal["mlp"] = "mlp"
    hidden: PositiveInt = 128
    layers: Annotated[int, Field(ge=2)] = 2
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.25

    def module(self, inputs: int, classes: int) -> nn.Module:
        """The head: (batch, inputs) -> (batch, classes)."""
        widths = [inputs] + [self.hidden] * (self.layers - 1)
        head = nn.Sequential()
        for width, after in pairwise(widths):
            head.extend([nn.Linear(width, after), nn.ReLU(), nn.Dropout(self.dropout)])
        return head.append(nn.Linear(self.hidden, classes))


def xavier(width: int, classes: int, seed: int, *parties: int) -> Tensor:
    """Linear heads W from Xavier's uniform distribution, float32 (*parties, width, classes)."""
    draws = torch.Generator().manual_seed(seed)
    bound = math.sqrt(6 / (width + classes))
    return torch.empty(*parties, width, classes).uniform_(-bound, bound, generator=draws)
