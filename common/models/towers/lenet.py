"""LeNet, one of the towers of VFedMH, Section 5.1: three convolutions, one pooling, linear layers.

The paper gives no sizes; these are those of LeNet-5 (LeCun et al. 1998, Section II-B): C1, C3 and C5 of
6, 16 and 120 maps with 5 x 5 kernels, S4 with 16 maps of 5 x 5, F6 with 84 units. The paper has one pooling
layer, so S2 is left out, and three linear layers, of which the last is its decision layer and no part of the
tower. Activations are ReLU instead of the scaled tanh of 1998.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, PositiveInt
from torch import nn

from colonnade.common.data.split import Shape
from colonnade.common.models.towers.image import averages, image_sizes, with_channels


class LenetConfig(BaseModel):
    """LeNet for images of any height and width; S4 averages, or repeats, its input to 5 x 5."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Literal["lenet"] = Field(
        default="lenet", description="the model, which decides the other keys of this section"
    )
    embedding: PositiveInt = Field(
        default=60, description="width of the embedding; left out, the protocol's `embedding` if it has one"
    )

    def module(self, input_shape: Shape) -> nn.Module:
        """The tower for images: (batch, [C,] H, W) -> (batch, embedding), nowhere negative.

        Raises:
            ConfigError: rows are no images.
        """
        channels, height, width = image_sizes(self.name, input_shape)
        return nn.Sequential(
            with_channels(input_shape),  # (batch, C, H, W)
            nn.Conv2d(channels, 6, kernel_size=5, padding=2),  # C1: (batch, 6, H, W)
            nn.ReLU(),
            nn.Conv2d(6, 16, kernel_size=5, padding=2),  # C3: (batch, 16, H, W)
            nn.ReLU(),
            averages(height, width, 5),  # S4: (batch, 16, 5, 5)
            nn.Flatten(),
            nn.Linear(16 * 5 * 5, 120),  # C5: kernels as large as its maps stand in one place only
            nn.ReLU(),
            nn.Linear(120, 84),  # F6
            nn.ReLU(),
            nn.Linear(84, self.embedding),
            nn.ReLU(),
        )
