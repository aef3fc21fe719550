"""A small convolutional tower, for whole images and for narrow strips of them.

Two convolutions and a linear layer, as in VFL-AFE, Section 4.1, for MNIST. The paper gives no widths; these are ours.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, PositiveInt
from torch import nn

from colonnade.common.data.split import Shape
from colonnade.common.models.towers.image import image_sizes, with_channels


class CnnConfig(BaseModel):
    """Two 3 x 3 convolutions of `channels` maps, each halving height and width, and a linear layer unless `flat`.

    The maximum is taken before ReLU: the same result for a quarter of the work.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Literal["cnn"] = Field(default="cnn", description="the model, which decides the other keys of this section")
    channels: tuple[PositiveInt, PositiveInt] = Field(default=(16, 32), description="maps of the two convolutions")
    embedding: PositiveInt = Field(
        default=60, description="width of the embedding; left out, the protocol's `embedding` if it has one"
    )
    flat: bool = Field(default=False, description="the features themselves are the embedding: no linear layer")

    def module(self, input_shape: Shape) -> nn.Module:
        """The tower for images: (batch, [C,] H, W) -> (batch, embedding), nowhere negative.

        Raises:
            ConfigError: rows are no images.
        """
        channels, height, width = image_sizes(self.name, input_shape)
        first, second = self.channels
        flat = second * _quarter(height) * _quarter(width)
        last = () if self.flat else (nn.Linear(flat, self.embedding), nn.ReLU())  # (batch, embedding)
        return nn.Sequential(
            with_channels(input_shape),  # (batch, C, H, W)
            nn.Conv2d(channels, first, kernel_size=3, padding=1),
            nn.MaxPool2d(2, ceil_mode=True),  # (batch, first, H/2, W/2), rounded up: one row stays one
            nn.ReLU(),
            nn.Conv2d(first, second, kernel_size=3, padding=1),
            nn.MaxPool2d(2, ceil_mode=True),  # (batch, second, H/4, W/4)
            nn.ReLU(),
            nn.Flatten(),
            *last,
        )


def _quarter(length: int) -> int:
    return -(-length // 4)
