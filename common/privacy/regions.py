"""Regions of a known diameter that embeddings are brought into, each 2t across.

VFL-AFE (Mi et al. 2023, Section 3.1) clips embeddings into a ball of radius t and notes that noise for its diameter
2t is more than embeddings need that fill only a part of it. Which part they fill may be fixed beforehand: vectors
without negative entries are at most a right angle apart, so that in the same diameter they may be sqrt(2) times as
long. On a sphere every row has its full length.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor

RegionName = Literal["ball", "sphere", "positive_ball", "positive_sphere"]

_TINY = 1e-12  # below which a row has no direction


def radius(region: RegionName, t: float) -> float:
    """The largest length of a row in a region of diameter 2t."""
    return t * math.sqrt(2) if region.startswith("positive") else t


def bring_into(region: RegionName, t: float, h: Tensor) -> Tensor:
    """Every row by itself into the region: differentiable, (rows, width) in its dtype.

    Balls shorten what is too long, spheres give every row the full length (a row of zeros stays one), and positive
    regions take negative entries for 0. Rows that are in the region already stay as they are, up to rounding.

    Args:
        region: which.
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
