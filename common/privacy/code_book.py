"""Fixed code books: from an encoder's probabilities of the classes to one of k codes.

They depend on numbers that every member knows, and on nobody's rows. With k = L C codes a code is the likeliest class
and in which of L equal parts of 1 / C to 1 its probability lies. Of two classes it is in which of k parts the log-odds
of the second lie, with bounds evenly from -3.5 to 1: the second is mostly the rarer one. With fewer codes than classes
a code is a group of classes: of party m the class c is in group (c + m floor(c / k)) mod k, so that two classes that
one party puts together are apart at another. Where the server groups classes by noisy counts, its groups take their
place.

Inputs of linear encoders are fixed functions of a row's own values, with a norm of at most 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d, one_hot, pad

from colonnade.common.errors import InputError

_TWO = 2  # classes
_ODDS = -3.5, 1.0  # lowest and highest bound between codes of two classes, in log-odds
_LEAST = 1e-12  # of a probability


@dataclass(frozen=True)
class CodeBook:
    """A party's code book.

    Args:
        classes: C, number of classes.
        codes: k, a multiple of C, or fewer than C.
        party: m, the party's place in the roster.
        given: groups of the classes in place of the fixed ones, int64 (classes,).
    """

    classes: int
    codes: int
    party: int = 0
    given: Tensor | None = None

    @property
    def groups(self) -> Tensor:
        """The group of every class where there are fewer codes than classes, int64 (classes,)."""
        if self.given is not None:
            return self.given
        c = torch.arange(self.classes)
        return (c + self.party * (c // self.codes)) % self.codes

    def of(self, probabilities: Tensor) -> Tensor:
        """The codes of rows.

        Args:
            probabilities: of the classes, (rows, classes).

        Returns:
            int64 (rows,), from 0 to k - 1.
        """
        if self.codes < self.classes:
            summed = torch.zeros(len(probabilities), self.codes, dtype=probabilities.dtype)
            return summed.index_add_(1, self.groups, probabilities).argmax(1)
        if self.classes == _TWO:
            odds = (probabilities[:, 1].clamp(min=_LEAST) / probabilities[:, 0].clamp(min=_LEAST)).log()
            bounds = torch.linspace(*_ODDS, self.codes - 1) if self.codes > _TWO else torch.zeros(1)
            return torch.bucketize(odds, bounds.to(odds.dtype))
        levels, (sure, named) = self.codes // self.classes, probabilities.max(1)
        least = 1 / self.classes
        level = ((sure - least) / (1 - least) * levels).long().clamp(0, levels - 1)
        return named * levels + level


_BLOCK = 4096  # rows at a time: gradients of an image take several times its memory
_LEAST_SIDE = 8  # pixels of an image's sides: of smaller ones the pixels say more
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
    if values.ndim == _IMAGE and min(values.shape[1:]) >= _LEAST_SIDE:
        return oriented_gradients(values)
    x = values.flatten(1).nan_to_num(0.0, 0.0, 0.0).clamp(-_MOST, _MOST)
    bins = one_hot(torch.bucketize(x.contiguous(), torch.tensor(_EDGES, device=x.device)), len(_EDGES) + 1)
    x = torch.cat([x, bins.flatten(1).to(x.dtype)], dim=1) / math.sqrt(2 * max(1, x.shape[1]))
    x = torch.cat([x, torch.full((len(x), 1), _CONSTANT, device=x.device)], dim=1)
    bounded: Tensor = x / x.norm(dim=1, keepdim=True).clamp(min=1.0)
    return bounded


_BINS, _CELL, _STRIDE = 9, 4, 2
_BORDER = _CELL  # pixels of zeros on every side
_NEAR = 3  # cells in a row and in a column, over which the contrast is normalised
_FLOOR = 1e-3  # added to the energy near a cell, so that empty places stay near zero


def oriented_gradients(images: Tensor) -> Tensor:
    """Features of unit length, float32 (rows, 9 r c), r = (height + 4) // 2 + 1 and c alike; zeros for zeros.

    `images` are of one channel, from 0 to 1: (rows, height, width), both at least 4.
    """
    if images.ndim != 3 or min(images.shape[1:]) < _CELL:
        raise InputError(
            f"images of shape {tuple(images.shape)}: expected (rows, height, width), of {_CELL} pixels at least",
            hint="give one channel, for example the mean of colours",
        )
    x = pad(images.float(), (_BORDER + 1,) * 4)
    across, down = x[:, 1:-1, 2:] - x[:, 1:-1, :-2], x[:, 2:, 1:-1] - x[:, :-2, 1:-1]
    turn = torch.atan2(down, across).remainder(math.pi) * (_BINS / math.pi)
    lower, rest = turn.floor(), turn - turn.floor()
    size, first = torch.hypot(across, down), lower.long().remainder(_BINS)
    votes = torch.zeros(len(x), _BINS, *size.shape[1:])
    votes.scatter_add_(1, first[:, None], (size * (1 - rest))[:, None])
    votes.scatter_add_(1, ((first + 1) % _BINS)[:, None], (size * rest)[:, None])
    cells = avg_pool2d(votes, _CELL, _STRIDE)
    energy = avg_pool2d((cells**2).sum(1, keepdim=True), _NEAR, 1, _NEAR // 2, count_include_pad=False)
    found = (cells / (_NEAR**2 * energy + _FLOOR).sqrt()).sqrt().flatten(1)
    unit: Tensor = found / found.norm(dim=1, keepdim=True).clamp(min=1e-6)
    return unit
