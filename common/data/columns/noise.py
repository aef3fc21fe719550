"""Noise on a party's values, to test a federation against a party with bad data.

An experiment (VIMADMM, Section VI-C, "client denoising"), not a protection: the noise is drawn from the federation's
public seed, so a resumed run sees the same values again.
"""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

from colonnade.common.data.rows import generator


class DataNoiseConfig(BaseModel):
    """Gaussian noise on every scaled value: of every row, or of those alone that are not trained on."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    std: float = Field(gt=0, description="standard deviation, in units of the scaled values")
    rows: Literal["all", "held_out"] = Field(
        default="all", description="held_out: rows for training stay as they are; validation and test rows are noised"
    )

    def on(self, values: Tensor, seed: int, party: str, train_rows: Tensor | None = None) -> Tensor:
        """The values with noise of their own shape added; equal arguments give equal noise.

        Args:
            values: scaled, float32 (n, ...).
            seed: the federation's.
            party: owner of the values.
            train_rows: int64 (m,); None where no row is one of them, as of rows to predict.
        """
        noisy = add_gaussian(values, self.std, generator("noise", seed, party))
        if self.rows == "held_out" and train_rows is not None:
            noisy[train_rows] = values[train_rows]
        return noisy


def add_gaussian(values: Tensor, std: float, draws: torch.Generator) -> Tensor:
    """values + N(0, std^2), independent per entry, float32 of the same shape, on the CPU."""
    return values + std * torch.randn(values.shape, generator=draws)
