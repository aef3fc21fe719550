"""A linear softmax classifier of a party's rows by DP-SGD, for codes: rows are drawn in secret.

Abadi et al., "Deep learning with differential privacy" (2016), Algorithm 1, over features that are fixed functions of
their own row alone. A row's gradient x (p - y)' has the norm |x| |p - y|, so clipping needs no gradient of a row. The
result is the mean of the second half of all iterates (Polyak and Juditsky 1992), which costs nothing.

Epsilon is that of common/privacy/accounting/sampled.py for a row with other features or another label. It holds as long
as nobody but the party learns which rows were drawn, so draws come from the system's randomness, never from a seed of
the federation.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from colonnade.common.errors import InputError
from colonnade.common.privacy.accounting.sampled import SampledGaussian
from colonnade.common.privacy.laplace import Bits, drawn_rows
from colonnade.common.privacy.noise import Normals, secure_bytes, secure_normals
from colonnade.common.privacy.response_noise import RowNoise

_ROUNDING = 1e-6  # relative, of norms and sums
_LARGEST = 1e30  # of a feature: its square must be finite, or a norm would not be a number


@dataclass(frozen=True)
class LinearEncoder:
    """Settings of the training.

    Args:
        mechanism: the rate of drawing, the noise multiplier and the number of steps.
        clip: C, the largest L2 norm of a row's gradient.
        lr: the learning rate, for the mean gradient of the rows that are expected in a step.
    """

    mechanism: SampledGaussian
    clip: float
    lr: float

    def train(
        self, features: Tensor, targets: Tensor, *, normals: Normals = secure_normals, bits: Bits | None = None
    ) -> Tensor:
        """Trains from zero.

        Args:
            features: of all rows, (rows, features); entries that are not finite count as 0.
            targets: a probability of every class, (rows, classes).
            bits: source of the draws; the system's if None.

        Returns:
            Weights, float64 (features, classes).

        Raises:
            InputError: features and targets are not of as many rows, or a target is no probability.
        """
        if features.ndim != 2 or targets.ndim != 2 or len(features) != len(targets) or not len(features):
            said = f"features {tuple(features.shape)} and targets {tuple(targets.shape)}"
            raise InputError(f"{said}: expected two matrices of as many rows, at least one")
        if not bool(((targets >= 0) & (targets <= 1)).all()):  # false for what is not a number, too
            raise InputError("targets: expected probabilities, from 0 to 1")
        drawn_by, noise = bits or secure_bytes(), RowNoise(self.clip, self.mechanism.noise_multiplier, normals)
        weights = torch.zeros(features.shape[1], targets.shape[1], dtype=torch.float64)
        mean, steps = torch.zeros_like(weights), self.mechanism.steps
        expected = self.mechanism.rate * len(features)
        for step in range(steps):
            rows = torch.from_numpy(drawn_rows(len(features), self.mechanism.rate, drawn_by))
            (total,) = noise.noised([self.clipped_sum(weights, features[rows], targets[rows])])
            weights = weights - self.lr / expected * total
            if step >= steps // 2:
                mean += weights / (steps - steps // 2)
        return mean

    def clipped_sum(self, weights: Tensor, features: Tensor, targets: Tensor) -> Tensor:
        """The sum of the rows' gradients, each of a norm of at most C: float64, in the weights' shape."""
        x = features.double().nan_to_num(nan=0.0, posinf=0.0, neginf=0.0).clamp(-_LARGEST, _LARGEST)
        error = (x @ weights).softmax(dim=1) - targets
        norms = error.norm(dim=1) * x.norm(dim=1)
        threshold = self.clip * (1 - _ROUNDING)
        total: Tensor = x.T @ (error * (threshold / norms.clamp(min=threshold)).unsqueeze(1))
        return total
