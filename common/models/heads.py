"""Heads: embeddings -> one score per class."""

from __future__ import annotations

import math
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm

from colonnade.common.config import models as sections
from colonnade.common.models.norm import BatchNorm
from colonnade.common.moved import moved


def head_module(
    config: sections.LinearHeadConfig | sections.MlpHeadConfig | sections.NormedHeadConfig,
    inputs: int,
    classes: int,
    draws: torch.Generator | None = None,
) -> nn.Module:
    """The head: (batch, inputs) -> (batch, classes). Dropout comes from `draws`, or from torch's own generator."""
    match config:
        case sections.LinearHeadConfig():
            return nn.Linear(inputs, classes, bias=config.bias)
        case sections.MlpHeadConfig():
            head = nn.Sequential()
            for width, after in pairwise(config.widths(inputs)):
                dropout = nn.Dropout(config.dropout) if draws is None else SeededDropout(config.dropout, draws)
                head.extend([nn.Linear(width, after), nn.ReLU(), dropout])
            return head.append(nn.Linear(config.hidden, classes))
        case sections.NormedHeadConfig():
            return nn.Sequential(
                nn.Linear(inputs, config.hidden),
                BatchNorm(config.hidden),
                nn.Linear(config.hidden, config.hidden),
                nn.ReLU(),
                BatchNorm(config.hidden),
                weight_norm(nn.Linear(config.hidden, classes)),
            )


class SeededDropout(nn.Dropout):
    """Dropout with its own CPU generator, which a checkpoint can store."""

    def __init__(self, rate: float, draws: torch.Generator) -> None:
        super().__init__(rate)
        self._draws = draws

    def forward(self, input: Tensor) -> Tensor:
        """Zeros entries with probability `rate` and divides the others by 1 - rate, in training only."""
        if not (self.training and self.p):
            return input
        kept = torch.empty(input.shape).bernoulli_(1 - self.p, generator=self._draws)
        return input * kept.div_(1 - self.p).to(input.device)


def xavier(width: int, classes: int, start: torch.Generator) -> Tensor:
    """A linear head W from Xavier's uniform initialisation, float32 (width, classes)."""
    bound = math.sqrt(6 / (width + classes))
    return torch.empty(width, classes).uniform_(-bound, bound, generator=start)


_MOVED = (
    "LinearHeadConfig",
    "ProductHeadConfig",
    "MlpHeadConfig",
    "NormedHeadConfig",
    "PartyHeadConfig",
    "JointHeadConfig",
)
__getattr__ = moved(__name__, dict.fromkeys(_MOVED, "colonnade.common.config.models"))
