"""Noise on a party's values, to test a federation against a party with bad data.

An experiment (VIMADMM, Section VI-C, "client denoising"), not a protection: the noise is drawn from the federation's
public seed, so a resumed run sees the same values again.
"""

from __future__ import annotations

import torch
from torch import Tensor

from colonnade.common.config.data.columns import DataNoiseConfig
from colonnade.common.data.rows import generator


def noised(config: DataNoiseConfig, values: Tensor, seed: int, party: str, train_rows: Tensor | None = None) -> Tensor:
    """The values with noise of their own shape added; equal arguments give equal noise.

    Args:
        config: the party's `data.noise`.
        values: scaled, float32 (n, ...).
        seed: the federation's.
        party: owner of the values.
        train_rows: int64 (m,); None where no row is one of them, as of rows to predict.
    """
    noisy = add_gaussian(values, config.std, generator("noise", seed, party))
    if config.rows == "held_out" and train_rows is not None:
        noisy[train_rows] = values[train_rows]
    return noisy


def add_gaussian(values: Tensor, std: float, draws: torch.Generator) -> Tensor:
    """values + N(0, std^2), independent per entry, float32 of the same shape, on the CPU."""
    return values + std * torch.randn(values.shape, generator=draws)
