"""The one-layer tower of VFL-CZOFO, Section 5."""

from __future__ import annotations

import math
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, PositiveInt
from torch import nn

from colonnade.common.data.split import Shape


class LinearConfig(BaseModel):
    """One linear layer, with a ReLU unless `activation` is `none`. The paper's width is 64."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Literal["linear"] = Field(
        default="linear", description="the model, which decides the other keys of this section"
    )
    embedding: PositiveInt = Field(
        default=60, description="width of the embedding; left out, the protocol's `embedding` if it has one"
    )
    activation: Literal["relu", "none"] = Field(default="relu", description="function after the layer")

    def module(self, input_shape: Shape) -> nn.Module:
        """The tower for rows of a shape: (batch, *input_shape) -> (batch, embedding)."""
        layers = [nn.Flatten(), nn.Linear(math.prod(input_shape), self.embedding)]
        return nn.Sequential(*layers, *([nn.ReLU()] if self.activation == "relu" else []))
