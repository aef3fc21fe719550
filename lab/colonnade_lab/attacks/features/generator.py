"""The generative regression network (GRN) of Luo et al. 2021, Section 5, for any differentiable model.

A network makes the victim's columns from what the others hold, so that the model's predictions match. It learns from
predictions alone. The paper's network knows no row, and bounds the variance of its output. Here it starts from a
regression on the known rows and is penalised for departures that are unlikely under the regression's errors; the
known rows choose the penalty.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from colonnade_lab.attacks.features.coalition import Coalition
from colonnade_lab.attacks.features.prior import Prior
from colonnade_lab.attacks.network import fit, linear

_WEIGHTS = (1e-3, 1e-2, 1e-1, 1.0)  # penalties of unlikely rows against misfits in variances of the logarithms


def regress(seen: Coalition, have: Tensor) -> Tensor:
    """Ridge regression of the victim's columns on the known rows `have`, without the model, float32 (n, columns)."""
    return linear(seen.inputs[have], seen.x[have].flatten(1))[0](seen.inputs)


def generate(seen: Coalition, have: Tensor, seed: int) -> Tensor:
    """Trains networks on all predictions, and returns the best one's rows, float32 (n, columns).

    The first half of the known rows `have` fits the regression, the second half measures it.
    """
    first, second = have[: len(have) // 2], have[len(have) // 2 :]
    expected, truth = regress(seen, first), seen.x[second].flatten(1)
    errors, whole = Prior.of(truth - expected[second]), Prior.of(seen.x[have])

    def error(weight: float) -> float:
        made = _made(seen, expected, errors, weight, seed)[second]
        return functional.mse_loss(whole.within(made), truth).item()

    best = min(_WEIGHTS, key=error)
    return whole.within(_made(seen, regress(seen, have), errors, best, seed))


def _made(seen: Coalition, expected: Tensor, errors: Prior, weight: float, seed: int) -> Tensor:
    size, each = seen.logs.var(0).sum().clamp(min=1e-12), weight / len(errors.basis)

    def loss(outputs: Tensor, places: Tensor) -> Tensor:
        rows = expected[places] + outputs @ errors.basis
        misfit = (seen.predict(rows, places) - seen.logs[places]).square().sum(1) / size
        return (misfit + each * outputs.square().sum(1)).mean()

    network = fit(seen.inputs, torch.arange(len(seen.inputs)), loss, len(errors.basis), seed)
    return expected + network(seen.inputs) @ errors.basis
