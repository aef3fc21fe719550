"""Clients' networks of FedVS, Table 1: MLP and CNN of one to three layers. The widths are ours: the paper has none."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from torch import nn

MAPS = 16
HIDDEN = 128


def mlp(shape: Sequence[int], width: int = 64, layers: int = 1) -> nn.Module:
    """`layers` linear layers with ReLU between: (batch, *shape) -> (batch, width)."""
    sizes = [math.prod(shape), *[HIDDEN] * (layers - 1)]
    network = nn.Sequential(nn.Flatten())
    for size, after in pairwise(sizes):
        network.extend([nn.Linear(size, after), nn.ReLU()])
    return network.append(nn.Linear(sizes[-1], width))


def cnn(shape: Sequence[int], width: int = 64, layers: int = 1) -> nn.Module:
    """`layers` 3 x 3 convolutions with ReLU, a maximum over 2 x 2, a linear layer: (batch, H, W) -> (batch, width)."""
    height, across = shape[-2:]
    network = nn.Sequential(nn.Unflatten(1, (1, height)))
    for layer in range(layers):
        network.extend([nn.Conv2d(MAPS if layer else 1, MAPS, 3, padding=1), nn.ReLU()])
    return network.extend([nn.MaxPool2d(2), nn.Flatten(), nn.Linear(MAPS * (height // 2) * (across // 2), width)])
