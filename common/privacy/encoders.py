"""Encoders of rows for codes: a linear softmax classifier of a party's rows by DP-SGD, its inputs, and code books.

Abadi et al., "Deep learning with differential privacy" (2016), Algorithm 1, over features that are fixed functions of
their own row alone, with a norm of at most 1. A row's gradient x (p - y)' has the norm |x| |p - y|, so clipping needs
no gradient of a row. The result is the mean of the second half of all iterates (Polyak and Juditsky 1992), which costs
nothing.

Epsilon is that of common/privacy/accounting/sampled.py for a row with other features or another label. It holds while
the drawn rows are secret, so draws come from the system's randomness, never from a seed of the federation.

A code book maps an encoder's class probabilities to one of k codes. Code books are fixed: they depend only on numbers
that every member knows, not on rows. With k = L C codes a code is the likeliest class together with the one of L equal
parts of [1 / C, 1] that contains its probability. With two classes it is the one of k parts that contains the log-odds
of the second, with bounds evenly from -3.5 to 1: the second is mostly the rarer one. With fewer codes than classes a
code is a group of classes: of party m the class c is in group (c + m floor(c / k)) mod k, so that two classes in one
group at one party are in different groups at another. Where the server groups classes by noisy counts, its groups take
their place.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d, one_hot, pad

from colonnade.common.errors import InputError
from colonnade.common.privacy.accounting.sampled import SampledGaussian
from colonnade.common.privacy.laplace import Bits, drawn_rows
from colonnade.common.privacy.noise import Normals, secure_bytes, secure_normals
from colonnade.common.privacy.response_noise import RowNoise

_ROUNDING = 1e-6  # relative, of norms and sums
_LARGEST = 1e30  # of a feature: its square must be finite, or a norm would not be a number


@dataclass(frozen=True)
class LinearEncoder:
    """Settings of the training.

    Args:
        mechanism: the rate of drawing, the noise multiplier and the number of steps.
        clip: C, the largest L2 norm of a row's gradient.
        lr: the learning rate, for the sum of gradients divided by a step's expected number of rows.
    """

    mechanism: SampledGaussian
    clip: float
    lr: float

    def train(
        self, features: Tensor, targets: Tensor, *, normals: Normals = secure_normals, bits: Bits | None = None
    ) -> Tensor:
        """Trains from zero.

        Args:
            features: all rows', (rows, features); entries that are not finite count as 0.
            targets: a probability of every class, (rows, classes).
            bits: source of the draws; the system's if None.

        Returns:
            Weights, float64 (features, classes).

        Raises InputError if features and targets are not of as many rows, or a target is no probability.
        """
        if features.ndim != 2 or targets.ndim != 2 or len(features) != len(targets) or not len(features):
            said = f"features {tuple(features.shape)} and targets {tuple(targets.shape)}"
            raise InputError(f"{said}: expected two matrices of as many rows, at least one")
        if not bool(((targets >= 0) & (targets <= 1)).all()):  # false for what is not a number, too
            raise InputError("targets: expected probabilities, from 0 to 1")
        drawn_by, noise = bits or secure_bytes(), RowNoise(self.clip, self.mechanism.noise_multiplier, normals)
        weights = torch.zeros(features.shape[1], targets.shape[1], dtype=torch.float64)
        mean, steps = torch.zeros_like(weights), self.mechanism.steps
        expected = self.mechanism.rate * len(features)
        for step in range(steps):
            rows = torch.from_numpy(drawn_rows(len(features), self.mechanism.rate, drawn_by))
            (total,) = noise.noised([self.clipped_sum(weights, features[rows], targets[rows])])
            weights = weights - self.lr / expected * total
            if step >= steps // 2:
                mean += weights / (steps - steps // 2)
        return mean

    def clipped_sum(self, weights: Tensor, features: Tensor, targets: Tensor) -> Tensor:
        """The sum of the rows' gradients, each of a norm of at most C: float64, in the weights' shape."""
        x = features.double().nan_to_num(nan=0.0, posinf=0.0, neginf=0.0).clamp(-_LARGEST, _LARGEST)
        error = (x @ weights).softmax(dim=1) - targets
        norms = error.norm(dim=1) * x.norm(dim=1)
        threshold = self.clip * (1 - _ROUNDING)
        total: Tensor = x.T @ (error * (threshold / norms.clamp(min=threshold)).unsqueeze(1))
        return total


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
            probabilities: class probabilities, (rows, classes).

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

    Images become histograms of oriented gradients (of their mean colour). Other values, which should be standardised,
    become the value clipped to 3 deviations, a one-hot of nine bins, and a constant. Each row is scaled to a norm of at
    most 1.

    Args:
        values: a party's, float32 (rows, columns), (rows, height, width) or (rows, channels, height, width).

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
