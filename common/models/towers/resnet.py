"""Residual networks, the large towers of VFedMH (its Figures 4 and 5).

He, Zhang, Ren, Sun, "Deep Residual Learning for Image Recognition" (CVPR 2016), Table 1: a stem, four stages of
blocks with 64, 128, 256 and 512 maps, each stage after the first halving height and width, and an average over the
remaining image. The stem of Table 1 (7 x 7 with stride 2, then a max-pool) leaves little of a small image: up to 64
pixels a side it is one 3 x 3 convolution, as in the paper's Section 4.2 for CIFAR-10. The stride of a bottleneck lies
in its 3 x 3 convolution instead of its first. Weights begin as torch draws them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from torch import Tensor, nn
from torch.nn import functional

from colonnade.common.config.data.columns import Shape
from colonnade.common.config.models import ResnetConfig
from colonnade.common.models.towers.images import image_sizes, with_channels
from colonnade.common.models.towers.norm import ImageBatchNorm

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
