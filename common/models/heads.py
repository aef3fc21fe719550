"""Heads: embeddings -> one score per class."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Annotated, Any, Literal

import torch
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PositiveInt
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm

from colonnade.common.models.towers.norm import BatchNorm


class LinearHeadConfig(BaseModel):
    """One linear layer, without a bias like the heads of VIMADMM (its W_k)."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Literal["linear"] = Field(
        default="linear", description="the head, which decides the other keys of this section"
    )
    bias: bool = Field(default=False, description="adds a bias to every score")

    def module(self, inputs: int, classes: int, draws: torch.Generator | None = None) -> nn.Module:  # noqa: ARG002
        """The head: (batch, inputs) -> (batch, classes). No dropout."""
        return nn.Linear(inputs, classes, bias=self.bias)

    def size(self, inputs: int, classes: int) -> int:
        """Number of parameters."""
        return (inputs + self.bias) * classes


class ProductHeadConfig(BaseModel):
    """h W_k: the linear head of one party in VIMADMM."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Literal["linear"] = Field(
        default="linear", description="the head, which decides the other keys of this section"
    )

    def size(self, inputs: int, classes: int) -> int:
        """Number of parameters."""
        return inputs * classes


class MlpHeadConfig(BaseModel):
    """`layers` linear layers with ReLU and dropout between: the non-linear head of VIMADMM, Section V-B2.

    The paper has two layers (three for NUS-WIDE) and a dropout of .25; it gives no width.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Literal["mlp"] = Field(default="mlp", description="the head, which decides the other keys of this section")
    hidden: PositiveInt = Field(default=128, description="width of the hidden layers")
    layers: Annotated[int, Field(ge=2)] = Field(default=2, description="linear layers, the last one included")
    dropout: Annotated[float, Field(ge=0, lt=1)] = Field(
        default=0.25, description="share of hidden values that a training step leaves out"
    )

    def module(self, inputs: int, classes: int, draws: torch.Generator | None = None) -> nn.Module:
        """The head: (batch, inputs) -> (batch, classes). Dropout comes from `draws`, or from torch's own generator."""
        head = nn.Sequential()
        for width, after in pairwise(self._widths(inputs)):
            dropout = nn.Dropout(self.dropout) if draws is None else SeededDropout(self.dropout, draws)
            head.extend([nn.Linear(width, after), nn.ReLU(), dropout])
        return head.append(nn.Linear(self.hidden, classes))

    def size(self, inputs: int, classes: int) -> int:
        """Number of parameters, weights and biases."""
        return sum((width + 1) * after for width, after in pairwise([*self._widths(inputs), classes]))

    def _widths(self, inputs: int) -> list[int]:
        return [inputs] + [self.hidden] * (self.layers - 1)


class NormedHeadConfig(BaseModel):
    """Linear, batch norm, linear, ReLU, batch norm, weight-normed linear: FedVS, Appendix C, for credit cards.

    The paper ends in a sigmoid of one score; two scores with a softmax are equivalent. It gives no width.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Literal["normed"] = Field(
        default="normed", description="the head, which decides the other keys of this section"
    )
    hidden: PositiveInt = Field(default=128, description="width of the hidden layers")

    def module(self, inputs: int, classes: int) -> nn.Module:
        """The head: (batch, inputs) -> (batch, classes)."""
        return nn.Sequential(
            nn.Linear(inputs, self.hidden),
            BatchNorm(self.hidden),
            nn.Linear(self.hidden, self.hidden),
            nn.ReLU(),
            BatchNorm(self.hidden),
            weight_norm(nn.Linear(self.hidden, classes)),
        )


class SeededDropout(nn.Dropout):
    """Dropout with its own CPU generator, which a checkpoint can store."""

    def __init__(self, rate: float, draws: torch.Generator) -> None:
        super().__init__(rate)
        self._draws = draws

    def forward(self, input: Tensor) -> Tensor:
        """Zeros entries with probability `rate` and divides the others by 1 - rate, in training only."""
        if not (self.training and self.p):
            return input
        kept = torch.empty(input.shape).bernoulli_(1 - self.p, generator=self._draws)
        return input * kept.div_(1 - self.p).to(input.device)


def _expand(value: Any) -> Any:
    """The short form: `mlp`."""
    return {"name": value} if isinstance(value, str) else value


PartyHeadConfig = Annotated[
    Annotated[ProductHeadConfig | MlpHeadConfig, Field(discriminator="name")], BeforeValidator(_expand)
]
"""Agreed head of each party in VIMADMM."""

JointHeadConfig = Annotated[
    Annotated[LinearHeadConfig | MlpHeadConfig, Field(discriminator="name")], BeforeValidator(_expand)
]
"""Agreed head over all embeddings in C-VFL."""


def xavier(width: int, classes: int, start: torch.Generator) -> Tensor:
    """A linear head W from Xavier's uniform initialisation, float32 (width, classes)."""
    bound = math.sqrt(6 / (width + classes))
    return torch.empty(width, classes).uniform_(-bound, bound, generator=start)
