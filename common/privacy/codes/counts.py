"""Noisy counts of what an encoder names: from them the server groups classes that a party cannot tell apart.

Of C classes, n[y, c] training rows of the class y are named c. A row with other features or another label moves two
counts by 1, so that discrete Laplace noise of scale b is 2 / b-differentially private (Ghosh, Roughgarden and
Sundararajan, "Universally utility-maximizing privacy mechanisms", 2012).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from colonnade.common.privacy.laplace import Bits, discrete_laplace

_SENSITIVITY = 2  # in the L1 norm


@dataclass(frozen=True)
class CountNoise:
    """The mechanism.

    Args:
        asked: epsilon as configured.
    """

    asked: float

    @property
    def scale(self) -> int:
        """b, rounded up: never less noise than configured."""
        return math.ceil(_SENSITIVITY / self.asked)

    @property
    def epsilon(self) -> float:
        """Epsilon of a training row, at most the configured one."""
        return _SENSITIVITY / self.scale

    def draw(self, labels: Tensor, named: Tensor, classes: int, bits: Bits) -> Tensor:
        """Counts with noise, int64 (classes, classes).

        Args:
            labels: classes of the rows, int64 (rows,).
            named: what the encoder names, int64 (rows,).
        """
        cells = torch.bincount(labels * classes + named, minlength=classes**2)
        noise = torch.from_numpy(discrete_laplace(classes**2, self.scale, bits))
        return (cells + noise).reshape(classes, classes)
