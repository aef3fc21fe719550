"""The two-layer tower of VIMADMM, Section V (MNIST and NUS-WIDE)."""

from __future__ import annotations

import math
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, PositiveInt
from torch import nn

from colonnade.common.data.split import Shape


class MlpConfig(BaseModel):
    """Two linear layers with a ReLU after each, or after the first alone; the authors use widths of 120 and 60."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Literal["mlp"] = Field(default="mlp", description="the model, which decides the other keys of this section")
    hidden: PositiveInt = Field(default=120, description="width of the first layer")
    embedding: PositiveInt = Field(
        default=60, description="width of the embedding; left out, the protocol's `embedding` if it has one"
    )
    signed: bool = Field(default=False, description="embeddings may be negative: no ReLU after the second layer")

    def module(self, input_shape: Shape) -> nn.Module:
        """The tower for rows of a shape: (batch, *input_shape) -> (batch, embedding), nowhere negative or `signed`."""
        last = () if self.signed else (nn.ReLU(),)
        return nn.Sequential(
            nn.Flatten(),  # (batch, d)
            nn.Linear(math.prod(input_shape), self.hidden),  # (batch, hidden)
            nn.ReLU(),
            nn.Linear(self.hidden, self.embedding),  # (batch, embedding)
            *last,
        )
