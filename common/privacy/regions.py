"""Regions of diameter 2t for embeddings.

VFL-AFE (Mi et al. 2023, Section 3.1) clips embeddings into a ball of radius t and notes that noise for its diameter 2t
is excessive for embeddings that fill only a part of it. The part can be fixed beforehand: vectors without negative
entries are at most a right angle apart, so within the same diameter they may be sqrt(2) times as long. On a sphere
every row has its full length.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from colonnade.common.config.privacy import RegionName

_TINY = 1e-12  # length below which a row has no direction


def radius(region: RegionName, t: float) -> float:
    """The largest length of a row in a region of diameter 2t."""
    return t * math.sqrt(2) if region.startswith("positive") else t


def bring_into(region: RegionName, t: float, h: Tensor) -> Tensor:
    """Maps every row separately into the region: differentiable, (rows, width) in its dtype.

    Balls shorten rows that are too long, spheres give every row the full length (a row of zeros stays one), and
    positive regions set negative entries to 0. Rows already in the region do not change, up to rounding.

    Args:
        t: half its diameter.
        h: rows, all finite.
    """
    if region.startswith("positive"):
        h = torch.relu(h)
    lengths = torch.linalg.vector_norm(h, dim=1, keepdim=True)
    full = radius(region, t)
    shortest = full if region.endswith("ball") else _TINY
    within: Tensor = h * (full / lengths.clamp(min=shortest))
    return within
