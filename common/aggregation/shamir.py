"""Shares of secrets, t of n: any t of them give the secret, and t - 1 reveal nothing about it.

Source: Shamir, "How to share a secret" (1979). A polynomial of degree t - 1 over F_p takes the secret at 0, and its
other coefficients are uniform; party k's share is its value at k + 1, for k from 0. Vectors are shared entry by entry.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import torch
from torch import Tensor

from colonnade.common.aggregation.field import Elements, Field
from colonnade.common.aggregation.integers import LARGEST, lagrange_matrix
from colonnade.common.config.federation import FederationConfig
from colonnade.common.errors import InputError

_SETS = 256  # sets of parties whose coefficients are cached


@dataclass(frozen=True)
class Sharing:
    """Parameters of a sharing: t, n, and p of the field, a prime larger than n."""

    threshold: int
    parties: int
    p: int = LARGEST

    def __post_init__(self) -> None:
        if not 1 <= self.threshold <= self.parties < self.p:
            raise InputError(
                f"no sharing among {self.parties} parties of which {self.threshold} open a secret, modulo {self.p}",
                hint="take 1 <= t <= n < p",
            )

    def share(self, secrets: Tensor, draws: Elements) -> Tensor:
        """Shares, int64 (n, ...), of secrets, int64 (...); `draws` is a source of uniform elements of this field."""
        coefficients = torch.cat([secrets.reshape(1, -1), draws((self.threshold - 1, secrets.numel()))])
        return self._field.matmul(self._powers, coefficients).view(self.parties, *secrets.shape)

    def combine(self, places: Sequence[int], shares: Tensor) -> Tensor:
        """The secrets, int64 (...), of any t shares.

        Args:
            places: the shares' parties, 0 .. n - 1, in any order.
            shares: elements (t, ...).
        """
        distinct = len(set(places)) == len(places) and set(places) <= set(range(self.parties))
        if not distinct or not len(places) == len(shares) == self.threshold:
            raise InputError(
                f"{len(shares)} shares of parties {list(places)}: expected {self.threshold} of different parties",
                hint="give each party's share once",
            )
        weights = _weights(tuple(place + 1 for place in places), (0,), self.p)
        return self._field.matmul(weights, shares.flatten(1) if shares.dim() > 1 else shares[:, None]).view(
            shares.shape[1:]
        )

    def fit(self, places: Sequence[int], shares: Tensor) -> Tensor:
        """True for each vector whose shares are all of one polynomial; any t shares are.

        Args:
            places: the shares' parties, t or more different ones.
            shares: elements (m, vectors, elements).

        Returns:
            bool (vectors,).
        """
        points, t = tuple(place + 1 for place in places), self.threshold
        if len(points) == t:
            return torch.ones(shares.shape[1], dtype=torch.bool)
        fitted = self._field.matmul(_weights(points[:t], points[t:], self.p), shares[:t].flatten(1))
        return (fitted.view_as(shares[t:]) == shares[t:]).all(-1).all(0)

    @cached_property
    def _field(self) -> Field:
        return Field(self.p)

    @cached_property
    def _powers(self) -> Tensor:
        """(k + 1)^j, int64 (n, t)."""
        points, degrees = range(1, self.parties + 1), range(self.threshold)
        return torch.tensor([[pow(point, degree, self.p) for degree in degrees] for point in points])


@lru_cache(maxsize=_SETS)
def _weights(points: tuple[int, ...], targets: tuple[int, ...], p: int) -> Tensor:
    """int64 (targets, t)."""
    return torch.tensor(lagrange_matrix(points, targets, p))


def sharing(federation: FederationConfig) -> Sharing | None:
    """How keys are shared for recovery; None without it."""
    threshold = federation.blinding.threshold(len(federation.parties))
    return Sharing(threshold, len(federation.parties)) if threshold else None
