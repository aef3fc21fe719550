"""Parameters of a Lagrange code, on which all members agree (lagrange.py)."""

from __future__ import annotations

from dataclasses import dataclass

from colonnade.common.aggregation.integers import PrimeField
from colonnade.common.errors import InputError


@dataclass(frozen=True)
class CodeParameters:
    """Parameters of a Lagrange code.

    Args:
        field: F_p.
        segments: K >= 1.
        betas: β_1 .. β_{K+T}: the points of the segments, then of the masks.
        alphas: α_1 .. α_N: the points of the shares.
    """

    field: PrimeField
    segments: int
    betas: tuple[int, ...]
    alphas: tuple[int, ...]

    def __post_init__(self) -> None:
        p, points = self.field.p, self.betas + self.alphas
        if self.segments < 1 or self.masks < 1:
            raise InputError(
                f"{self.segments} segments and {self.masks} masks: expected at least one of each",
                hint="without a mask a share is a function of the data alone",
            )
        if self.shares < self.threshold:
            raise InputError(
                f"{self.shares} parties cannot decode K = {self.segments}, T = {self.masks}: at least {self.threshold}"
                " must answer",
                hint="fedvs needs three parties at least; with more, lower `segments` (K) or `masks` (T): "
                "R = 2 (K + T - 1) + 1 must not exceed their number",
            )
        if len(set(points)) < len(points) or not all(0 <= point < p for point in points):
            raise InputError(
                f"the {len(points)} points of a Lagrange code are not distinct elements of F_{p}",
                hint="take a p larger than K + T + N, and every point once",
            )

    @property
    def masks(self) -> int:
        """T."""
        return len(self.betas) - self.segments

    @property
    def shares(self) -> int:
        """N."""
        return len(self.alphas)

    @property
    def threshold(self) -> int:
        """R, the number of responses that decoding needs."""
        return 2 * (len(self.betas) - 1) + 1

    @property
    def freedom(self) -> int:
        """R - K, the number of coefficients of a polynomial that vanishes at β_1 .. β_K."""
        return self.threshold - self.segments


def agreed_parameters(field: PrimeField, segments: int, masks: int, shares: int) -> CodeParameters:
    """K segments, T masks, N >= R shares: β = 1 .. K + T and α = K + T + 1 .. K + T + N, where p > K + T + N."""
    points = tuple(range(1, segments + masks + shares + 1))
    return CodeParameters(field, segments, points[: segments + masks], points[segments + masks :])
