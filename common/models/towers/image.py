"""Rows that are images: (height, width) in grey, (channels, height, width) in colour."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from colonnade.common.data.split import Shape
from colonnade.common.errors import ConfigError


def image_sizes(model: str, input_shape: Shape) -> tuple[int, int, int]:
    """Channels, height and width of a party's part of an image.

    Args:
        model: its name, for the error.
        input_shape: of one row.

    Raises:
        ConfigError: rows are no images.
    """
    if len(input_shape) not in (2, 3) or min(input_shape) < 1:
        raise ConfigError(
            f"the model {model!r} takes images, but a row of this party has the shape {input_shape}",
            hint="use the model `mlp`, or split the source by image_rows, patches or halves",
        )
    *planes, height, width = input_shape
    return planes[0] if planes else 1, height, width


def with_channels(input_shape: Shape) -> nn.Module:
    """Layer that maps rows in grey or colour to (batch, channels, height, width).

    From 4 x 4 on the memory format is channels-last, which halves the time of convolutions and maxima of many maps on a
    CPU; for strips of fewer rows it is slower.
    """
    *planes, height, width = input_shape
    if min(height, width) < 4:
        return nn.Identity() if planes else nn.Unflatten(1, (1, height))
    return ChannelsLast()


class ChannelsLast(nn.Module):
    """(batch, [C,] H, W) to (batch, C, H, W) in channels-last memory format."""

    def forward(self, rows: Tensor) -> Tensor:
        """The same numbers; a single channel is not copied."""
        if rows.dim() == 3 or rows.shape[1] == 1:
            return rows.reshape(len(rows), *rows.shape[-2:], 1).permute(0, 3, 1, 2)
        return rows.contiguous(memory_format=torch.channels_last)


def averages(height: int, width: int, size: int) -> nn.Module:
    """Layer that averages maps of (height, width) to (size, size), like `nn.AdaptiveAvgPool2d`."""
    small = height * width <= 1024  # the matrix has size * size * height * width numbers
    return Averages(height, width, size) if small else nn.AdaptiveAvgPool2d(size)


class Averages(nn.Module):
    """`nn.AdaptiveAvgPool2d` as a product with a constant matrix: a fraction of its time where windows overlap.

    Args:
        height, width: of the maps.
        size: of the output, on both axes; (batch, C, height, width) -> (batch, C, size, size).
    """

    def __init__(self, height: int, width: int, size: int) -> None:
        super().__init__()
        self._size = size
        pixels = torch.eye(height * width).view(height * width, 1, height, width)
        weights = nn.functional.adaptive_avg_pool2d(pixels, size).flatten(1).t().contiguous()
        self.weights: Tensor
        self.register_buffer("weights", weights, persistent=False)

    def forward(self, maps: Tensor) -> Tensor:
        """The averages, with channels last in memory."""
        sums = self.weights @ maps.permute(0, 2, 3, 1).flatten(1, 2)  # (batch, size * size, C)
        return sums.view(len(maps), self._size, self._size, maps.shape[1]).permute(0, 3, 1, 2)
