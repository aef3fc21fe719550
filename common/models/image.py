"""Rows that are images: (height, width) in grey, (channels, height, width) in colour."""

from __future__ import annotations

from torch import nn

from common.data.split import Shape
from common.errors import ConfigError


def image_sizes(model: str, input_shape: Shape) -> tuple[int, int, int]:
    """Channels, height and width of a party's part of an image.

    Args:
        model: who asks, for the error.
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
    """The layer that makes (batch, channels, height, width) of rows in grey or colour."""
    return nn.Unflatten(1, (1, input_shape[0])) if len(input_shape) == 2 else nn.Identity()
