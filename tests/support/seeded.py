"""Generators that begin alike in every run of the tests."""

from __future__ import annotations

import torch


def seeded(seed: int) -> torch.Generator:
    """A CPU generator with a seed."""
    return torch.Generator().manual_seed(seed)
