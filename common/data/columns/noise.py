"""Noise on a party's values, to test a federation against a party with bad data.

An experiment (VIMADMM, Section VI-C, "client denoising"), no protection: the noise is drawn from the federation's
public seed, so that a resumed run sees the same values.
"""

from __future__ import annotations

import torch
from torch import Tensor

from colonnade.common.config.data.columns import DataNoiseConfig
from colonnade.common.data.rows import generator


def noised(config: DataNoiseConfig, values: Tensor, seed: int, party: str, train_rows: Tensor | None = None) -> Tensor:
    """Scaled values, float32 (n, ...), with noise; rows `train_rows`, int64 (m,), stay as they are with `rows:
    held_out`.
    """
    noisy = add_gaussian(values, config.std, generator("noise", seed, party))
    if config.rows == "held_out" and train_rows is not None:
        noisy[train_rows] = values[train_rows]
    return noisy


def add_gaussian(values: Tensor, std: float, draws: torch.Generator) -> Tensor:
    """values + N(0, std^2), independent per entry, float32 of the same shape, on the CPU."""
    return values + std * torch.randn(values.shape, generator=draws)
