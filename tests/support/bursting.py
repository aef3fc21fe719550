"""A tower that overflows after a number of steps that is the same on every processor."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

SOURCE = '''
import math

import torch
from torch import nn


class _Burst(torch.autograd.Function):
    """Embeddings, 1e30 times as large from a bound on; the counter's gradient is -1, whatever the rows are."""

    @staticmethod
    def forward(ctx, h, counter, bound):
        ctx.factor = 1e30 if float(counter) > bound else 1.0
        return h * ctx.factor

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.factor, -torch.ones(()), None


class Bursting(nn.Module):
    def __init__(self, shape, width, bound):
        super().__init__()
        self.tower = nn.Sequential(nn.Flatten(), nn.Linear(math.prod(shape), width))
        self.counter = nn.Parameter(torch.zeros(()))
        self.bound = bound

    def forward(self, rows):
        return _Burst.apply(self.tower(rows), self.counter, self.bound)
'''


def bursting(folder: Path, steps: float, lr: float, *, width: int = 60) -> dict[str, Any]:
    """A party's section: with this rate its embeddings overflow after so many steps, with a lower one later.

    Args:
        folder: of the configuration, where its file is written.
        steps: of the optimiser until then; a half more, so that rounding does not decide.
        lr: of plain gradient descent.
    """
    assert not math.isclose(steps, round(steps))
    (folder / "bursting.py").write_text(SOURCE)
    model = {"file": "./bursting.py:Bursting", "width": width, "bound": lr * steps}
    return {"model": model, "optimiser": {"name": "sgd", "lr": lr, "momentum": 0, "weight_decay": 0}}
