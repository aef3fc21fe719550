"""Noise of a sum of discrete Gaussians, accounted as one continuous Gaussian of proven smaller deviation.

n parties add independent discrete Gaussians of sigma steps. Their sum is no discrete Gaussian. Two steps, each with a
proven ratio of probabilities, lead to the Gaussian mechanism, whose composition is exact (accountant.py):

1. Kairouz, Liu and Steinke, "The distributed discrete Gaussian mechanism for federated learning with secure
   aggregation" (2021), on the convolution of n discrete Gaussians: in every entry the ratio of the sum's probabilities
   to those of a discrete Gaussian of variance n sigma^2 is at most e^tau either way, with
   tau = 10 sum_(k = 1)^(n - 1) exp(-2 pi^2 sigma^2 k / (k + 1)).
2. Let Z be N(0, S^2 - v), and round it at random to y with probability proportional to exp(-(y - Z)^2 / (2 v)). The
   normaliser is sqrt(2 pi v) (1 +- e), e = 2 exp(-2 pi^2 v) (1 + ..), by Poisson's summation; so y is a discrete
   Gaussian of variance S^2 but for a ratio of (1 + e) / (1 - e). The rounding commutes with whole shifts: a discrete
   Gaussian added to whole numbers is a function of them plus N(0, S^2 - v).

A transcript of d entries in all is therefore a post-processing of Gaussian releases, but for a ratio of e^(d kappa),
kappa = tau + log((1 + e) / (1 - e)), at both neighbours: epsilon grows by 2 d kappa, and delta by a factor e^(d kappa).
`share` chooses deviations that make the variance n sigma^2 - v as large as promised. From LEAST steps on, d kappa is
below 10^-50 for any d below 2^60, less than the rounding of epsilon.
"""

from __future__ import annotations

import math
from fractions import Fraction

SMOOTHING = 9
"""v, of the rounding: the variance that is given up."""

LEAST = 2**8
"""The smallest sigma of a share, in steps."""


def share(deviation: float, parties: int) -> int:
    """The smallest sigma of each party's noise for which the sum over them has a promised deviation.

    Args:
        deviation: promised, in steps: that of a continuous Gaussian to which the sum's noise is added up.
        parties: n, whose noise counts.
    """
    wanted = Fraction(deviation) ** 2 + SMOOTHING
    found = math.isqrt(math.ceil(wanted / parties))
    return found if parties * found**2 >= wanted else found + 1


def promised(sigma: int, parties: int) -> float:
    """sqrt(n sigma^2 - v): deviation of the continuous Gaussian that the sum's noise is accounted as."""
    return math.sqrt(parties * sigma**2 - SMOOTHING)


def excess(sigma: int, parties: int) -> float:
    """kappa, the logarithm of the largest ratio of probabilities in an entry.

    Args:
        sigma: of each party's noise, in steps.
        parties: n.
    """
    tau = 10 * sum(math.exp(-2 * math.pi**2 * sigma**2 * k / (k + 1)) for k in range(1, parties))
    e = sum(2 * math.exp(-2 * math.pi**2 * SMOOTHING * k**2) for k in range(1, 4))
    return tau + math.log1p(e) - math.log1p(-e)
