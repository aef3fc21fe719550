"""Inputs of linear encoders: fixed functions of a row's own values, with a norm of at most 1."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from colonnade.common.numerics.oriented_gradients import oriented_gradients

_BLOCK = 4096  # rows at a time: gradients of an image take several times its memory
_LEAST = 8  # pixels of an image's sides: of smaller ones the pixels say more
_IMAGE, _COLOUR = 3, 4  # axes of rows of images, and of images with channels
_MOST = 3.0  # of a column's value: a standardised row has a norm of about 1 then
_EDGES = (-1.5, -1.0, -0.5, 0.0, 0.5, 1.0, 1.5, 2.5)  # of a standardised column's bins
_CONSTANT = 0.5  # input of every row beside its columns


def inputs_of_rows(read: Callable[[Tensor], Tensor], rows: Tensor) -> Tensor:
    """`encoder_inputs` of rows, block by block.

    Args:
        read: rows -> a party's values.
        rows: their numbers, int64 (rows,).
    """
    return torch.cat([encoder_inputs(read(block).cpu()) for block in torch.split(rows, _BLOCK)])


def encoder_inputs(values: Tensor) -> Tensor:
    """Inputs of an encoder, computed from rows.

    Images become histograms of oriented gradients (those of the mean of their colours). Of other values, which should
    be standardised, there is the value up to 3 deviations and which of nine bins it is in, beside a constant. Either is
    brought to a norm of at most 1 row by row.

    Args:
        values: of a party, float32 (rows, columns), (rows, height, width) or (rows, channels, height, width).

    Returns:
        float32 (rows, inputs).
    """
    if values.ndim == _COLOUR:
        values = values.mean(1)
    if values.ndim == _IMAGE and min(values.shape[1:]) >= _LEAST:
        return oriented_gradients(values)
    x = values.flatten(1).nan_to_num(0.0, 0.0, 0.0).clamp(-_MOST, _MOST)
    bins = one_hot(torch.bucketize(x.contiguous(), torch.tensor(_EDGES, device=x.device)), len(_EDGES) + 1)
    x = torch.cat([x, bins.flatten(1).to(x.dtype)], dim=1) / math.sqrt(2 * max(1, x.shape[1]))
    x = torch.cat([x, torch.full((len(x), 1), _CONSTANT, device=x.device)], dim=1)
    bounded: Tensor = x / x.norm(dim=1, keepdim=True).clamp(min=1.0)
    return bounded
