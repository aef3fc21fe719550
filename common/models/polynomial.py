"""The polynomial network of FedVS, Section 3: a sum of linear maps of the input's powers.

Li, Yao, Liu, "FedVS: Straggler-Resilient and Privacy-Preserving Vertical Federated Learning for Split
Models" (2023), Eq. 1, after Livni et al. 2014: h = sum_i x^i W^i, i = 1 .. D, with powers taken element by
element. The paper has a bias b^i in every layer, by a 1 appended to the row. All powers of 1 are 1, so that
only the biases' sum counts: here there is one bias, and h = [x, x^2, .., x^D, 1] W with one matrix W.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn


class Polynomial(nn.Module):
    """h = powers(x) W, with `weight` W (D d + 1, width): d rows for each power in turn, and the bias.

    Args:
        layers: D.
        clip: values of x are clipped to its size first; 0: they are not.
    """

    def __init__(self, inputs: int, layers: int, width: int, clip: float = 0) -> None:
        super().__init__()
        self.layers, self.clip = layers, clip
        self.weight = nn.Parameter(torch.zeros(layers * inputs + 1, width))
        with torch.no_grad():
            for power in range(1, layers + 1):
                bound = _bound(inputs, layers, power)
                self.weight[(power - 1) * inputs : power * inputs].uniform_(-bound, bound)

    def powers(self, x: Tensor) -> Tensor:
        """[x, x^2, .., x^D, 1]: (batch, ...) -> (batch, D d + 1)."""
        x = x.flatten(1).clamp(-self.clip, self.clip) if self.clip else x.flatten(1)
        powers = [x]
        for _ in range(1, self.layers):
            powers.append(powers[-1] * x)
        return torch.cat([*powers, x.new_ones(x.shape[0], 1)], dim=1)

    def forward(self, x: Tensor) -> Tensor:
        return self.powers(x) @ self.weight


def _bound(inputs: int, layers: int, power: int) -> float:
    """Bound of the uniform initial weights of a power; the bias begins at 0.

    With one layer, the bound of torch's linear layer. With more, every power contributes an equal share of the
    embedding's variance for standard normal values: E x^2i = 1 * 3 * .. * (2i - 1).
    """
    return 1 / math.sqrt(layers * inputs * math.prod(range(1, 2 * power, 2)))
