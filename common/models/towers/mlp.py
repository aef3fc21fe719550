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

    name: Literal["mlp"] = "mlp"
    hidden: PositiveInt = 120
    embedding: PositiveInt = 60
    signed: bool = Field(
        default=False, description="whether embeddings may be negative: no ReLU after the second layer"
    )

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
