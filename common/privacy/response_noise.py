"""Label differential privacy by noise on all responses to the parties: clip every row, add noise, account.

The Gaussian mechanism (Dwork and Roth 2014, Appendix A) on every message, and on the server's own step as DP-SGD takes
it (Abadi et al. 2016, Algorithm 1). Neighbours differ in the label of one training row (`replace`); features, batches
and all that the server has ever sent are known to the attacker. A row's share of every label-dependent value is clipped
to C in the L2 norm. Another label then changes the whole by at most 2C, so noise from N(0, (sigma C)^2) in every entry
is the mechanism with noise multiplier sigma / 2. Later computation is post-processing.

Every share must be a function of its own row's label alone, given what was released before: no batch norm.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from colonnade.common.privacy.noise import Normals, add_normals


class RowNoise:
    """The mechanism for one release: clips rows to C, adds noise of deviation sigma C.

    Args:
        clip: C.
        noise_multiplier: sigma.
    """

    def __init__(self, clip: float, noise_multiplier: float, normals: Normals) -> None:
        self._clip, self._deviation, self._normals = clip, noise_multiplier * clip, normals

    def rows(self, values: Tensor) -> Tensor:
        """Every row separately, with noise in every entry: (rows, ...) -> the same shape and dtype."""
        (clipped,) = clip_rows([values], self._clip)
        return add_normals(clipped, self._deviation, self._normals).to(values.dtype)

    def sums(self, values: Sequence[Tensor]) -> list[Tensor]:
        """The rows' sums with noise in every entry: tensors (rows, *shape), clipped together, -> (*shape) each."""
        flat, scale = _scaled(values, self._clip)
        sums = [(scale @ rows).reshape(value.shape[1:]) for rows, value in zip(flat, values, strict=True)]
        return [total.to(value.dtype) for total, value in zip(self.noised(sums), values, strict=True)]

    def noised(self, sums: Sequence[Tensor]) -> list[Tensor]:
        """Sums of rows that are clipped to C already, with noise in every entry, in their dtypes."""
        return [add_normals(total, self._deviation, self._normals).to(total.dtype) for total in sums]


def clip_rows(values: Sequence[Tensor], threshold: float) -> list[Tensor]:
    """Scales every row, taken over all tensors, to an L2 norm of at most C; float64, in their shapes.

    Entries that are not finite count as 0: noise would not hide them.

    Args:
        values: (rows, *shape) each.
        threshold: C.
    """
    flat, scale = _scaled(values, threshold)
    return [(rows * scale.unsqueeze(1)).reshape(value.shape) for rows, value in zip(flat, values, strict=True)]


def _scaled(values: Sequence[Tensor], threshold: float) -> tuple[list[Tensor], Tensor]:
    """Every tensor as float64 (rows, entries), and the factors of its rows, (rows,)."""
    flat = [value.to(torch.float64, copy=True).reshape(len(value), math.prod(value.shape[1:])) for value in values]
    for rows in flat:
        rows.nan_to_num_(nan=0.0, posinf=0.0, neginf=0.0)  # in place: of a large head these are many
    norms = torch.stack([torch.linalg.vector_norm(rows, dim=1) for rows in flat]).norm(dim=0)
    return flat, threshold / norms.clamp(min=threshold)
