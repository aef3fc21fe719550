"""Privacy cost of DP-SGD over rows that the party draws in secret: the Gaussian mechanism under Poisson sampling.

Every step draws each row with probability q, independently and in secret, clips its gradient to C in the L2 norm, and
adds N(0, (sigma C)^2) to every entry of the sum (Abadi et al. 2016, Algorithm 1). Neighbours differ in the content of
one row (replace-one): the row's gradient is g in one data set and g' in the other, of any direction and of norm 1 at
most, in units of C.

The pair ((1 - q) N(0) + q N(1), (1 - q) N(0) + q N(-1)), with variances sigma^2, dominates a step:

1. Balle, Barthe and Gaboardi, "Privacy amplification by subsampling" (2018), Theorem 2: for a = 1 + q (b - 1), b >= 1,
   the divergence of order a is q times that of order b between N(g) and (1 - a / b) N(0) + (a / b) N(g').
2. After a shift by g this is E max(0, 1 - b R) with, for a standard normal x, |u| <= 1 / sigma and |v| <= 2 / sigma,
   R = (1 - a / b) e^(<u, x> - |u|^2 / 2) + (a / b) e^(<v, x> - |v|^2 / 2): the mean of a convex function of a sum of
   lognormals, whose distributions depend on |u| and |v| alone. It is largest if they are comonotone (Dhaene et al.,
   "The concept of comonotonicity in actuarial science and finance: theory", 2002, Theorem 7), so u and v parallel, and
   as long as possible: g = 1, g' = -1 on one axis. Orders below 1 are those of the exchanged, mirrored pair.

Steps compose by convolution of the privacy loss (Zhu, Dong and Wang, "Optimal accounting of differential privacy via
characteristic function", 2022, Theorem 10). The loss is moved to a grid so that both probabilities of every interval
are kept (Doroshenko et al., "Connect the dots", 2022): a mean-preserving spread, so delta never falls. Tails that are
cut count as infinite loss above, and are raised to the grid's lowest point below.

The rows' draws must stay secret: announced batches cost what common/privacy/accounting/accountant.py says.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr, ndtr

from colonnade.common.config.privacy import LEAST_DELTA
from colonnade.common.errors import InputError

_Array = NDArray[np.float64]

_STEP = 1e-4  # of the grid of losses, unless its range is long
_POINTS = 2**17  # of one step's grid, at most
_REACH = 9.0  # deviations of the noise: beyond is a probability of 1e-19
_CUT = 1e-15  # probability that a composition may move from either tail
_LARGEST = 1e5  # epsilon beyond which it is infinite
# LEAST_DELTA: convolutions are rounded, by up to some 1e-12 over a tail


@dataclass(frozen=True)
class SampledGaussian:
    """DP-SGD over secretly drawn rows.

    Args:
        rate: q, the probability that a step draws a row.
        noise_multiplier: sigma, standard deviation of the noise in units of C.
        steps: total number; M times a party's for a person with a row at each of M parties.

    Raises InputError if a number is outside its range.
    """

    rate: float
    noise_multiplier: float
    steps: int

    def __post_init__(self) -> None:
        if not 0 < self.rate <= 1:
            raise InputError(f"a row is drawn with probability {self.rate:g}", hint="give a rate above 0, at most 1")
        if not 0.1 <= self.noise_multiplier <= 1e4:
            raise InputError(f"noise multiplier {self.noise_multiplier:g}: expected 0.1 to 10000")
        if not 1 <= self.steps <= 10**6:
            raise InputError(f"{self.steps} steps: expected 1 to 1000000")

    def epsilon(self, delta: float) -> float:
        """The smallest epsilon at a delta, by replace-one. Raises InputError if delta is below 1e-9, or 1 or more."""
        _refuse_delta(delta)
        return _steps_on(self).epsilon(delta)

    def delta(self, epsilon: float) -> float:
        """The smallest delta at an epsilon of at least 0, by replace-one."""
        return _steps_on(self).delta(epsilon)

    def joint_delta(self, releases: float, noise_multiplier: float, epsilon: float) -> float:
        """The smallest delta at an epsilon of these steps and of Gaussian releases of the same row, by replace-one.

        Each may depend on all earlier ones. The releases are one with sigma / sqrt(T), exactly (Dong, Roth and Su 2022,
        "Gaussian differential privacy", Corollary 3.3); delta is the mean of its delta (Balle and Wang 2018, Theorem 8)
        at epsilon less the steps' loss.

        Args:
            releases: T, of values of the row that move by at most 1; fractional if some had more noise. 0 counts none.
            noise_multiplier: sigma of the releases, in units of that 1.
            epsilon: any number.
        """
        losses, mu = _steps_on(self), math.sqrt(releases) / noise_multiplier
        rest = epsilon - losses.step * (losses.first + np.arange(len(losses.mass)))
        if mu == 0:
            return losses.infinite + float((losses.mass * np.maximum(0, -np.expm1(rest))).sum())
        each = ndtr(mu / 2 - rest / mu) - np.exp(rest + log_ndtr(-mu / 2 - rest / mu))
        return losses.infinite + float((losses.mass * np.maximum(0, each)).sum())

    def joint_epsilon(self, releases: float, noise_multiplier: float, delta: float) -> float:
        """The smallest epsilon of at least 0 at a delta, as `joint_delta`, never below and at most 1e-6 above it.

        Raises InputError if delta is outside its range.
        """
        _refuse_delta(delta)
        low, high = 0.0, 1.0
        if self.joint_delta(releases, noise_multiplier, low) <= delta:
            return 0.0
        while self.joint_delta(releases, noise_multiplier, high) > delta:
            if high > _LARGEST:
                return math.inf
            low, high = high, 2 * high
        while high - low > 1e-6:
            middle = (low + high) / 2
            within = self.joint_delta(releases, noise_multiplier, middle) <= delta
            low, high = (low, middle) if within else (middle, high)
        return high

    def loss(self, x: float) -> float:
        """The privacy loss of one step with result x, in units of C, if no other row had a gradient."""
        loss = _loss(abs(x), self.rate, self.noise_multiplier)
        return loss if x >= 0 else -loss


def _refuse_delta(delta: float) -> None:
    if not LEAST_DELTA <= delta < 1:
        raise InputError(f"delta is {delta:g}", hint="give a number from 1e-9 to below 1, less than 1 / rows")


def find_noise(epsilon: float, delta: float, rate: float, steps: int) -> float:
    """The smallest noise multiplier for an epsilon of all steps, to three digits and never below.

    Raises InputError if a number is outside its range, or no noise multiplier within its range is enough.
    """
    if not 0 < epsilon < math.inf:
        raise InputError(f"epsilon is {epsilon:g}", hint="give a number above 0")
    low, high, sigma, power = 0.1, math.inf, 1.0, 1.0  # epsilon falls about as sigma^-power
    before: tuple[float, float] | None = None
    while high > 1.001 * low:
        found = SampledGaussian(rate, sigma, steps).epsilon(delta)  # beyond its range the mechanism is refused
        low, high = (low, sigma) if found <= epsilon else (sigma, high)
        if before is not None and 0 < found < math.inf and found != before[1]:
            power = min(max(math.log(before[1] / found) / math.log(sigma / before[0]), 0.5), 4.0)
        before = (sigma, found) if 0 < found < math.inf else before
        guess = sigma * min(max(found / epsilon, 0.1), 10.0) ** (1 / power)
        guess *= 1.0004 if high > 1.001 * guess else 1 / 1.0004  # to the side that is not close yet
        sigma = guess if low < guess < high else (2 * low if high == math.inf else math.sqrt(low * high))
    return high


@dataclass(frozen=True)
class _Losses:
    """A distribution of privacy losses.

    Args:
        step: the grid's.
        first: index of the grid's lowest point, whose loss is first * step.
        mass: probability of every point.
        infinite: probability of an infinite loss.
    """

    step: float
    first: int
    mass: _Array
    infinite: float

    def delta(self, epsilon: float) -> float:
        """E max(0, 1 - e^(epsilon - loss))."""
        loss = self.step * (self.first + np.arange(len(self.mass)))
        above = loss > epsilon
        return self.infinite + float(-(self.mass[above] * np.expm1(epsilon - loss[above])).sum())

    def epsilon(self, delta: float) -> float:
        """The smallest epsilon of at least 0 at a delta, between two points of the grid exactly."""
        if self.infinite >= delta:
            return math.inf
        if self.delta(0.0) <= delta:
            return 0.0
        low, high = 0, self.first + len(self.mass)  # points: delta is too large at `low`, and within at `high`
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self.delta(self.step * middle) <= delta else (middle, high)
        rest = self.mass[max(high - self.first, 0) :]
        weighted = float((rest * np.exp(-self.step * np.arange(len(rest)))).sum())  # of e^(high - loss)
        over = self.infinite + float(rest.sum()) - delta
        return self.step * high + math.log(over / weighted) if over > 0 and weighted > 0 else self.step * high


@lru_cache(maxsize=4)  # arrays of megabytes; a search asks for the same one many times
def _steps_on(steps: SampledGaussian) -> _Losses:
    return _composed(_one_step(steps.rate, steps.noise_multiplier), steps.steps)


def _one_step(rate: float, sigma: float) -> _Losses:
    """The loss of one step on a grid, from both probabilities of every interval between two points."""
    furthest = _loss(1 + _REACH * sigma, rate, sigma)
    step = max(_STEP, 2 * furthest / _POINTS)
    most = math.ceil(furthest / step)
    edges = _where(step * np.arange(most + 1, dtype=np.float64), rate, sigma)
    edges = np.concatenate([[-np.inf], -edges[:0:-1], edges, [np.inf]])  # the loss is an odd function
    p, q = (_mixture(edges, centre, rate, sigma) for centre in (1.0, -1.0))
    below = step * np.arange(-most, most)  # the lower point of every finite interval
    raised = (p[1:-1] - q[1:-1] * np.exp(below)) / -np.expm1(-step)
    raised = np.clip(raised, 0, p[1:-1])  # of an interval's probability, the part that goes to its upper point
    mass = np.zeros(2 * most + 1)
    mass[1:] += raised
    mass[:-1] += p[1:-1] - raised
    mass[0] += p[0]
    return _Losses(step, -most, mass, float(p[-1]))


def _loss(x: float, rate: float, sigma: float) -> float:
    """log of the pair's ratio of densities at x >= 0."""
    up, down = (math.log(rate) + (sign * 2 * x - 1) / (2 * sigma**2) for sign in (1, -1))
    rest = math.log1p(-rate) if rate < 1 else -math.inf
    return float(np.logaddexp(rest, up) - np.logaddexp(rest, down))


def _where(loss: _Array, rate: float, sigma: float) -> _Array:
    """x with a loss l >= 0.

    u = e^(x / sigma^2) solves c u^2 - (1 - q) (e^l - 1) u - c e^l = 0, with c = q e^(-1 / 2 sigma^2): it is
    (b + sqrt(b^2 + e^l)) with b = (1 - q) (e^l - 1) / 2 c, so log u = l / 2 + asinh(b e^(-l / 2)).
    """
    ratio = (1 - rate) / rate * math.exp(1 / (2 * sigma**2))
    half: _Array = sigma**2 * (loss / 2 + np.arcsinh(ratio * np.sinh(loss / 2)))
    return half


def _mixture(edges: _Array, centre: float, rate: float, sigma: float) -> _Array:
    """Probability of every interval under (1 - q) N(0) + q N(centre)."""
    return (1 - rate) * _between(edges / sigma) + rate * _between((edges - centre) / sigma)


def _between(z: _Array) -> _Array:
    """Standard normal probability of every interval, from the tail that is smaller."""
    low, high = z[:-1], z[1:]
    found: _Array = np.where(low > 0, ndtr(-low) - ndtr(-high), ndtr(high) - ndtr(low))
    return found


def _composed(one: _Losses, times: int) -> _Losses:
    """The loss of several steps, by repeated squaring."""
    total: _Losses | None = None
    while True:
        if times % 2:
            total = one if total is None else _added(total, one)
        times //= 2
        if not times:
            break
        one = _added(one, one)
    assert total is not None  # times is 1 or more
    return total


def _added(one: _Losses, two: _Losses) -> _Losses:
    """The loss of both, with its tails cut."""
    from scipy.signal import fftconvolve  # noqa: PLC0415  # a second of imports, which most runs do not need

    mass = np.maximum(fftconvolve(one.mass, two.mass), 0.0)
    infinite = one.infinite + two.infinite - one.infinite * two.infinite
    low = int(np.searchsorted(np.cumsum(mass), _CUT))
    high = len(mass) - int(np.searchsorted(np.cumsum(mass[::-1]), _CUT))
    infinite += float(mass[high:].sum())
    kept = mass[low:high].copy()
    kept[0] += mass[:low].sum()
    return _Losses(one.step, one.first + two.first + low, kept, infinite)
