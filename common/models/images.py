"""Towers for rows that are images: (height, width) in grey, (channels, height, width) in colour.

Residual networks are the large towers of VFedMH (its Figures 4 and 5). He, Zhang, Ren, Sun, "Deep Residual Learning for
Image Recognition" (CVPR 2016), Table 1: a stem, four stages of blocks with 64, 128, 256 and 512 maps, each stage after
the first halving height and width, and an average over the remaining image. The stem of Table 1 (7 x 7 with stride 2,
then a max-pool) leaves little of a small image: up to 64 pixels a side it is one 3 x 3 convolution, as in the paper's
Section 4.2 for CIFAR-10. The stride of a bottleneck lies in its 3 x 3 convolution instead of its first. Weights begin
as torch draws them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional

from colonnade.common.config.data.columns import Shape
from colonnade.common.config.models import CnnConfig, LenetConfig, ResnetConfig
from colonnade.common.errors import ConfigError
from colonnade.common.models.norm import ImageBatchNorm


def cnn(config: CnnConfig, input_shape: Shape) -> nn.Module:
    """Two convolutions and a linear layer: (batch, [C,] H, W) -> (batch, embedding), nowhere negative.

    As in VFL-AFE, Section 4.1, for MNIST; the widths are ours. Raises ConfigError if rows are no images.
    """
    channels, height, width = image_sizes(config.name, input_shape)
    first, second = config.channels
    flat = second * _quarter(height) * _quarter(width)
    last = () if config.flat else (nn.Linear(flat, config.embedding), nn.ReLU())  # (batch, embedding)
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


def lenet(config: LenetConfig, input_shape: Shape) -> nn.Module:
    """Three convolutions, one pooling, linear layers: (batch, [C,] H, W) -> (batch, embedding), nowhere negative.

    One of the towers of VFedMH, Section 5.1. The paper gives no sizes; these are those of LeNet-5 (LeCun et al. 1998,
    Section II-B): C1, C3 and C5 of 6, 16 and 120 maps with 5 x 5 kernels, S4 with 16 maps of 5 x 5, F6 with 84 units.
    The paper has one pooling layer, so S2 is left out, and three linear layers, of which the last is its decision layer
    and no part of the tower. Activations are ReLU instead of the scaled tanh of 1998. Raises ConfigError if rows are no
    images.
    """
    channels, height, width = image_sizes(config.name, input_shape)
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
        nn.Linear(84, config.embedding),
        nn.ReLU(),
    )


def image_sizes(model: str, input_shape: Shape) -> tuple[int, int, int]:
    """Channels, height and width of a party's part of an image. Raises ConfigError if rows are no images."""
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
        if rows.dim() == 3 or rows.shape[1] == 1:
            return rows.reshape(len(rows), *rows.shape[-2:], 1).permute(0, 3, 1, 2)
        return rows.contiguous(memory_format=torch.channels_last)


def averages(height: int, width: int, size: int) -> nn.Module:
    small = height * width <= 1024  # the matrix has size * size * height * width numbers
    return Averages(height, width, size) if small else nn.AdaptiveAvgPool2d(size)


class Averages(nn.Module):
    """`nn.AdaptiveAvgPool2d` as a product with a constant matrix: a fraction of its time where windows overlap."""

    def __init__(self, height: int, width: int, size: int) -> None:
        super().__init__()
        self._size = size
        pixels = torch.eye(height * width).view(height * width, 1, height, width)
        weights = nn.functional.adaptive_avg_pool2d(pixels, size).flatten(1).t().contiguous()
        self.weights: Tensor
        self.register_buffer("weights", weights, persistent=False)

    def forward(self, maps: Tensor) -> Tensor:
        sums = self.weights @ maps.permute(0, 2, 3, 1).flatten(1, 2)  # (batch, size * size, C)
        return sums.view(len(maps), self._size, self._size, maps.shape[1]).permute(0, 3, 1, 2)


_SMALL = 64  # pixels a side


def resnet(config: ResnetConfig, input_shape: Shape) -> nn.Module:
    """The tower for images: (batch, [C,] H, W) -> (batch, embedding), nowhere negative. Raises ConfigError."""
    channels, *sides = image_sizes(config.name, input_shape)
    block, growth, depths = _KINDS[config.name]
    tower = nn.Sequential(with_channels(input_shape), *_stem(channels, small=max(sides) <= _SMALL))
    inputs = 64
    for stage, depth in enumerate(depths):
        for place in range(depth):
            tower.append(block(inputs, 64 * 2**stage, 2 if stage and not place else 1))
            inputs = growth * 64 * 2**stage
    return tower.extend([nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, config.embedding), nn.ReLU()])


class Residual(nn.Module):
    """relu(F(x) + x), He et al., Eq. 1, or relu(F(x) + W_s x), Eq. 2, where F changes the shape."""

    def __init__(self, body: nn.Module, shortcut: nn.Module) -> None:
        super().__init__()
        self.body, self.shortcut = body, shortcut

    def forward(self, x: Tensor) -> Tensor:
        return functional.relu(self.body(x) + self.shortcut(x))


def _stem(channels: int, *, small: bool) -> list[nn.Module]:
    if small:
        return [*_convolution(channels, 64, 3), nn.ReLU()]
    return [*_convolution(channels, 64, 7, stride=2), nn.ReLU(), nn.MaxPool2d(3, stride=2, padding=1)]


def _basic(inputs: int, maps: int, stride: int) -> Residual:
    """Two 3 x 3 convolutions: He et al., Figure 5, left."""
    body = [*_convolution(inputs, maps, 3, stride), nn.ReLU(), *_convolution(maps, maps, 3)]
    return Residual(nn.Sequential(*body), _shortcut(inputs, maps, stride))


def _bottleneck(inputs: int, maps: int, stride: int) -> Residual:
    """1 x 1, 3 x 3, and 1 x 1 to four times as many maps: He et al., Figure 5, right."""
    body = [*_convolution(inputs, maps, 1), nn.ReLU(), *_convolution(maps, maps, 3, stride), nn.ReLU()]
    return Residual(nn.Sequential(*body, *_convolution(maps, 4 * maps, 1)), _shortcut(inputs, 4 * maps, stride))


def _shortcut(inputs: int, outputs: int, stride: int) -> nn.Module:
    """Option B of the paper: a 1 x 1 convolution where the shape changes."""
    if stride == 1 and inputs == outputs:
        return nn.Identity()
    return nn.Sequential(*_convolution(inputs, outputs, 1, stride))


def _convolution(inputs: int, outputs: int, size: int, stride: int = 1) -> list[nn.Module]:
    """A convolution that keeps height and width but for its stride, and batch norm, which makes a bias redundant."""
    return [
        nn.Conv2d(inputs, outputs, size, stride, padding=size // 2, bias=False),
        ImageBatchNorm(outputs),
    ]


_KINDS: Mapping[str, tuple[Callable[[int, int, int], Residual], int, tuple[int, ...]]] = {
    "resnet18": (_basic, 1, (2, 2, 2, 2)),
    "resnet50": (_bottleneck, 4, (3, 4, 6, 3)),
}
"""The block, its factor of output maps, and the number of blocks in each stage."""
