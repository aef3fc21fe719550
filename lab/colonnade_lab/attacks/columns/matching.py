"""Identifies rows known up to a linear map by directions whose values have a known column's distribution."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
import torch
from sklearn.decomposition import FastICA
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor


@dataclass(frozen=True)
class Marginals:
    """Sorted values of every column over the training rows, float64 (rows, columns), not assigned to rows."""

    values: Tensor

    @classmethod
    def of(cls, x: Tensor) -> Marginals:
        return cls(x.sort(0).values)

    @property
    def mean(self) -> Tensor:
        return self.values.mean(0)

    def quantiles(self, count: int) -> Tensor:
        """Returns the values at the middles of `count` equal shares, (count, columns)."""
        at = (torch.arange(count, dtype=torch.float64) + 0.5) / count
        return torch.quantile(self.values, at, dim=0)

    def distance(self, x: Tensor) -> float:
        """Distance of some rows' columns (n, columns) from these distributions: 0 if equal; zeros give about .8.

        This is Wasserstein's distance in standard deviations, averaged over the columns that vary.
        """
        spread = self.values.std(0, correction=0)
        varies = spread > 0
        apart = (x.sort(0).values - self.quantiles(len(x))).abs().mean(0)
        return float((apart[varies] / spread[varies]).clamp(max=10).mean())


_STEPS = 24  # rounds of sorting and regression
_DRAWN = 8  # random first directions, beside the independent components
_KEPT = 4  # directions that are iterated to convergence
_ROWS = 10  # rows per fitted direction
_LEAST = 1e-4  # relative to the largest singular value: smaller ones are noise


def whitened(values: Tensor, most: int) -> Tensor:
    """Returns at most `most` principal components of (n, width), each with variance 1, float64; few rows give fewer."""
    centred = values - values.mean(0)
    left, sizes, _ = torch.linalg.svd(centred, full_matrices=False)
    count = min(most, int((sizes > _LEAST * sizes[:1].clamp(min=1e-30)).sum()), max(1, len(values) // _ROWS))
    scaled: Tensor = left[:, :count] * len(values) ** 0.5
    return scaled


def matched(values: Tensor, known: Marginals, seed: int) -> Tensor:
    """Estimates columns, float64 (n, columns), of values (n, width) known up to a linear map, from distributions alone.

    A column's direction is searched from each independent component and from random ones: sort the values, put the
    column's quantiles in their places, regress the direction on them, and repeat until nothing changes. The direction
    whose sorted values are nearest to the quantiles wins. An estimate is shrunk to the column's mean by its correlation
    with the estimate from half of the rows, so that a chance fit contributes little.
    """
    z = whitened(values, known.values.shape[1])
    made = _columns(z, known, seed)
    half = torch.randperm(len(z), generator=torch.Generator().manual_seed(seed)) < len(z) // 2
    trust = torch.ones(made.shape[1], dtype=torch.float64)
    for part in (half, ~half):
        if int(part.sum()) > _ROWS:
            again = _columns(whitened(values[part], known.values.shape[1]), known, seed)
            trust = torch.minimum(trust, _correlation(again, made[part]).clamp(min=0))
    return known.mean + trust * (made - known.mean)


def turned(x: Tensor, known: Marginals, seed: int) -> Tensor:
    """Estimates columns of rows known up to a rotation about a point by the best of several rotations, (n, columns).

    A column is shrunk by its correlation under the best two rotations.
    """
    centred, wanted = x - x.mean(0), known.quantiles(len(x))
    target = wanted - wanted.mean(0)
    draws = torch.Generator().manual_seed(seed)
    size = x.shape[1]
    guess = _columns(whitened(x, size), known, seed) - known.mean
    random = torch.linalg.qr(torch.randn(2 * _DRAWN, size, size, generator=draws, dtype=torch.float64)).Q
    turns = torch.cat([_rotation(centred, guess[None]), random])
    columns = torch.arange(size)
    for _ in range(2 * _STEPS):
        places = (centred @ turns).argsort(1).argsort(1)  # (tries, n, columns)
        turns = _rotation(centred, target[places, columns])
    made = centred @ turns
    apart = (made.sort(1).values - target).square().mean((1, 2))
    best, second = made[apart.topk(2, largest=False).indices]
    found: Tensor = known.mean + _correlation(best, second).clamp(min=0) * best
    return found


def rotated_onto(x: Tensor, truth: Tensor) -> Tensor:
    """Rotates rows (n, columns) as near as possible to the true ones. It uses the truth: no attacker can do this."""
    centred, wanted = x - x.mean(0), truth - truth.mean(0)
    return centred @ _rotation(centred, wanted[None])[0] + truth.mean(0)


def _rotation(x: Tensor, wanted: Tensor) -> Tensor:
    left, _, right = torch.linalg.svd(x.T @ wanted)
    found: Tensor = left @ right
    return found


def _columns(z: Tensor, known: Marginals, seed: int) -> Tensor:
    first, wanted = _first(z, seed), known.quantiles(len(z))
    return torch.stack([_column(z, first, one) for one in wanted.T], dim=1)


def _column(z: Tensor, directions: Tensor, wanted: Tensor) -> Tensor:
    mean, spread = wanted.mean(), wanted.std(correction=0)
    if spread == 0:
        return mean.expand(len(z))
    target = (wanted - mean) / spread
    for steps in (_STEPS // 8, _STEPS):
        for _ in range(steps):
            placed = target[(z @ directions).argsort(0).argsort(0)]  # (n, tries): the quantile at each value's rank
            directions = z.T @ placed / len(z)
        apart = ((z @ directions).sort(0).values - target[:, None]).square().mean(0)
        directions = directions[:, apart.topk(min(_KEPT, len(apart)), largest=False).indices]
    found: Tensor = mean + spread * (z @ directions[:, 0])
    return found


def _correlation(a: Tensor, b: Tensor) -> Tensor:
    """Returns the correlation by column, 0 where either side is constant."""
    a, b = a - a.mean(0), b - b.mean(0)
    found: Tensor = (a * b).sum(0) / (a.norm(dim=0) * b.norm(dim=0)).clamp(min=1e-30)
    return found


def _first(z: Tensor, seed: int) -> Tensor:
    """Returns first directions (components, tries): each independent component with both signs, and random ones."""
    count = z.shape[1]
    draws = torch.Generator().manual_seed(seed)
    drawn = torch.randn(count, _DRAWN, generator=draws, dtype=torch.float64)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        parted = FastICA(whiten=False, random_state=seed, max_iter=200).fit(z.numpy())
    own = torch.from_numpy(np.ascontiguousarray(parted.components_.T))
    every = torch.cat([own, -own, drawn], dim=1)
    unit: Tensor = every / every.norm(dim=0)
    return unit
