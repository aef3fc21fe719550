"""Noise on a party's values, to test a federation against a party with bad data.

An experiment (VIMADMM, Section VI-C, "client denoising"), not a protection: the noise is drawn from the federation's
public seed, so a resumed run sees the same values again.
"""

from __future__ import annotations

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

from colonnade.common.data.rows import generator


class DataNoiseConfig(BaseModel):
    """Gaussian noise on every scaled value of every row, training and test alike."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    std: float = Field(gt=0, description="standard deviation, in units of the scaled values")

    def on(self, values: Tensor, seed: int, party: str) -> Tensor:
        """The values with noise of their own shape added; equal arguments give equal noise.

        Args:
            values: scaled, float32 (n, ...).
            seed: the federation's.
            party: owner of the values.
        """
        return add_gaussian(values, self.std, generator("noise", seed, party))


def add_gaussian(values: Tensor, std: float, draws: torch.Generator) -> Tensor:
    """values + N(0, std^2), independent per entry, float32 of the same shape, on the CPU."""
    return values + std * torch.randn(values.shape, generator=draws)
