"""Networks of linear layers and ReLUs: outputs and Jacobians."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from colonnade.common.errors import InputError

Layer = tuple[Tensor, Tensor, bool]
"""Weights (outputs, inputs), biases (outputs,), and whether a ReLU follows."""


@dataclass(frozen=True)
class Dense:
    """Sum of several members' networks, each applied to its own columns."""

    networks: Sequence[Sequence[Layer]]
    columns: Sequence[int]

    @classmethod
    def of(cls, models: Sequence[nn.Module], columns: Sequence[int]) -> Dense:
        """Copies the models' present weights in float64. Raises InputError if a model has other layers."""
        return cls([_layers(model) for model in models], columns)

    def __call__(self, x: Tensor) -> Tensor:
        """Maps rows (n, columns) to (n, width)."""
        return self.sloped(x, slopes=False)[0]

    def sloped(self, x: Tensor, *, slopes: bool = True) -> tuple[Tensor, Tensor]:
        """Returns the outputs (n, width) and the Jacobians (n, width, columns) of rows (n, columns)."""
        total: Tensor | float = 0.0
        found = []
        for layers, part in zip(self.networks, torch.split(x, list(self.columns), dim=1), strict=True):
            value, slope = part, None
            for weight, bias, bends in layers:
                value = value @ weight.T + bias
                if slopes:
                    slope = weight.expand(len(x), *weight.shape) if slope is None else weight @ slope
                if bends:
                    if slope is not None:
                        slope = slope * (value > 0)[..., None]
                    value = value.clamp(min=0)
            total = total + value
            if slope is not None:
                found.append(slope)
        assert isinstance(total, Tensor)
        return total, torch.cat(found, dim=2) if found else total


def _layers(model: nn.Module) -> list[Layer]:
    found: list[Layer] = []
    for module in model.modules():
        match module:
            case nn.Linear():
                bias = torch.zeros(module.out_features) if module.bias is None else module.bias
                found.append((module.weight.detach().double(), bias.detach().double(), False))
            case nn.ReLU() if found:
                found[-1] = (*found[-1][:2], True)
            case nn.Flatten() | nn.Sequential():
                pass
            case _:
                raise InputError(
                    f"a model with {type(module).__name__}: this attack knows linear layers and ReLUs",
                    hint="take a run with model: linear or mlp",
                )
    return found
