"""Groups of classes for parties with fewer codes than classes: what one party confuses, another should separate.

For a party whose encoder names c for rows of class y with frequency P(c | y), a grouping g and the release's noise
give P(code | y). The probability of confusing two classes is at most half the product, over the parties, of their
codes' Bhattacharyya coefficients (Bhattacharyya 1943; Kailath 1967). A local search lowers the sum over all pairs of
classes by moving or exchanging single classes, from the fixed grouping and from random ones.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import torch
from torch import Tensor

_STARTS = 6
_SWEEPS = 50
_GAIN = 1e-9


class Grouping:
    """Searches for groupings of all parties.

    Args:
        confusions: P(c | y) of every party, float64 (classes, classes) each.
        codes: k, fewer than the classes.
        kept: P(released code | code), float64 (codes, codes).
    """

    def __init__(self, confusions: Sequence[Tensor], codes: int, kept: Tensor) -> None:
        self._confusions, self._codes, self._kept = confusions, codes, kept
        self._classes = len(confusions[0])

    def best(self, fixed: Sequence[Tensor], free: Sequence[int]) -> list[Tensor]:
        """Groupings of all parties, int64 (classes,) each, from `fixed`; only parties at indices `free` may change."""
        draws, found = random.Random(0), list[tuple[float, list[Tensor]]]()  # noqa: S311  # no secret
        for start in range(_STARTS):
            groups = [own.clone() for own in fixed]
            for place in free if start else ():
                groups[place] = torch.tensor(
                    draws.sample([c % self._codes for c in range(self._classes)], self._classes)
                )
            for _ in range(_SWEEPS):
                better = [self._improve(groups, place) for place in free]
                if not any(better):
                    break
            found.append((self.cost(groups), groups))
        return min(found, key=lambda each: each[0])[1]

    def cost(self, groups: Sequence[Tensor]) -> float:
        """The bound on confusions, up to a factor."""
        overlap = torch.ones(self._classes, self._classes, dtype=torch.float64)
        for place, own in enumerate(groups):
            overlap = overlap * self._overlap(place, own)
        return float(overlap.sum() - overlap.diagonal().sum())

    def _overlap(self, place: int, groups: Tensor) -> Tensor:
        member = torch.nn.functional.one_hot(groups, self._codes).double()
        roots = (self._confusions[place] @ member @ self._kept).sqrt()
        return roots @ roots.T

    def _improve(self, groups: list[Tensor], place: int) -> bool:
        """Moves and exchanges one party's classes while that lowers the bound; returns True if something changed."""
        others = torch.ones(self._classes, self._classes, dtype=torch.float64)
        for other, own in enumerate(groups):
            if other != place:
                others = others * self._overlap(other, own)
        others.fill_diagonal_(0)
        best, better = float((others * self._overlap(place, groups[place])).sum()), False
        for tried in self._neighbours(groups[place]):
            if (now := float((others * self._overlap(place, tried)).sum())) < best - _GAIN:
                groups[place], best, better = tried, now, True
        return better

    def _neighbours(self, groups: Tensor) -> list[Tensor]:
        """Groupings with one class moved to another group, or two classes exchanged."""
        found = []
        for c in range(self._classes):
            for group in range(self._codes):
                found.append(groups.clone().index_fill_(0, torch.tensor([c]), group))
            for other in range(c):
                swapped = groups.clone()
                swapped[[c, other]] = groups[[other, c]]
                found.append(swapped)
        return found


def frequencies(counts: Tensor) -> Tensor:
    """P(c | y) from noisy counts, int64 (classes, classes); every cell counts at least one row."""
    positive = counts.double().clamp(min=1)
    return positive / positive.sum(1, keepdim=True)


def kept_codes(codes: int, size: int, kept: float) -> Tensor:
    """P(released code | code) for sets of one code; a larger set counts as one of its codes, drawn at random.

    `kept` is the probability that the set contains the code.
    """
    right, wrong = kept / size, (1 - kept / size) / (codes - 1)
    return torch.full((codes, codes), wrong, dtype=torch.float64).fill_diagonal_(right)
