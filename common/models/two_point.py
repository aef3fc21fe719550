"""Gradients from values alone: two evaluations along one random direction, zeroth-order optimisation.

Zhang et al., "Desirable companion for vertical federated learning: new zeroth-order gradient based algorithm"
(CIKM 2021); VFL-CZOFO, Eq. 2 with q = 1, over a model's parameters. For a loss f and parameters w of d numbers,

    phi (f(w + mu u) - f(w)) / mu  u,    u uniform on the unit sphere, phi = d; or u normal, phi = 1

has for mu -> 0 the gradient of f as its expectation. It is one number along one direction: its square is about d times
the gradient's, so a step must be shorter by this factor.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import torch
from torch import Tensor, nn
from torch.func import functional_call

from colonnade.common.models.losses import Loss

Draw = Literal["sphere", "normal"]


class TwoPoint:
    """Evaluates a model at two points and estimates the gradient from the loss at both.

    Args:
        draws: generator of the directions, on the CPU.
        draw: a normal direction has length about sqrt(d), which scales the step mu.
        mu: step along u to the second point, above 0.
    """

    def __init__(self, model: nn.Module, draws: torch.Generator, *, draw: Draw, mu: float) -> None:
        self._model, self._draws, self._draw, self._mu = model, draws, draw, mu
        trained = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
        self._names, self._parameters = list(trained), list(trained.values())
        self._sizes = [parameter.numel() for parameter in self._parameters]
        self._u = torch.empty(0)  # the last direction, (d,)

    def __call__(self, inputs: Tensor, *others: Tensor) -> list[Tensor]:
        """[f(inputs; w), f(inputs; w + mu u), f(others; w) ..] for a new u, without a graph; w does not change.

        All of them use the same dropout if it comes from torch's own generator. Running statistics of batch norm are
        updated as by f(inputs; w) alone. `others` have the shape of `inputs`.
        """
        self._u = self._direction()
        with torch.no_grad():
            moved = nn.utils.parameters_to_vector(self._parameters).add_(self._u, alpha=self._mu)
            perturbed = self._aside(inputs, self._split(moved))
            unperturbed = [self._aside(other, {}) for other in others]
            return [self._model(inputs), perturbed, *unperturbed]  # last: its draws and statistics are the ones kept

    def estimate(self, slope: float) -> None:
        """Sets every trained parameter's `grad` to its part of phi slope u; slope = (f(w + mu u) - f(w)) / mu."""
        phi = sum(self._sizes) if self._draw == "sphere" else 1
        gradient = self._split(self._u * (phi * slope))
        for name, parameter in zip(self._names, self._parameters, strict=True):
            parameter.grad = gradient[name]

    def _direction(self) -> Tensor:
        """u, (d,), of the parameters' dtype and on their device."""
        normals = torch.randn(sum(self._sizes), generator=self._draws).to(self._parameters[0])
        return normals if self._draw == "normal" else normals / normals.norm()

    def _split(self, flat: Tensor) -> dict[str, Tensor]:
        parts = zip(self._names, torch.split(flat, self._sizes), self._parameters, strict=True)
        return {name: part.view_as(parameter) for name, part, parameter in parts}

    def _aside(self, inputs: Tensor, parameters: Mapping[str, Tensor]) -> Tensor:
        """f with other parameters; buffers and torch's generator are restored."""
        buffers = {name: buffer.clone() for name, buffer in self._model.named_buffers()}
        with torch.random.fork_rng([inputs.device] if inputs.is_cuda else []):
            outputs: Tensor = functional_call(self._model, {**parameters, **buffers}, (inputs,))
        return outputs


def row_losses(loss: Loss, logits: Tensor, targets: Tensor) -> Tensor:
    """Losses of rows, float64 (rows,), from logits (rows, classes).

    Their differences are often a millionth of their size: subtract row by row, then take the mean.
    """
    return loss.value(logits.double(), targets)
