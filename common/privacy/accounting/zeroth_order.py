"""VFL-CZOFO's privacy claim for the labels behind its zeroth-order gradients, from measured quantities.

Source: Wang, Zhang, Gu, Li, Wang and Ling, "A Unified Solution for Privacy and Communication Efficiency in Vertical
Federated Learning" (VFL-CZOFO), 2023, Theorem 4.1. The estimate of the gradient at a party's outputs (Eq. 2) is a
mean over q random directions. For large q the paper treats it as a Gaussian mechanism whose noise is the estimate's own
scatter, with (Eq. 3)

    epsilon = 2 zeta sqrt(2 ln(1.25 / delta)) / (N sigma)

per step, and T steps compose to (Dwork and Roth 2014, Theorem 3.20)

    epsilon_bar = sqrt(2 T ln(1 / delta')) epsilon + T epsilon (e^epsilon - 1),    delta_bar = T delta + delta'.

The paper prints the first epsilon under the root, and its Table 2 was computed that way: at q = 10 that is the printed
85.9, where the theorem that it cites gives 5.24; at q = 100 it is 93.9 (93.6 within the rounding of the inputs), where
the theorem gives 6.40. For an epsilon below 1 the printed form is the larger one: it is looser by a factor, not wrong.
Both come with a delta_bar of .094, which is no guarantee: publishing all labels with probability .094 satisfies it with
an epsilon of 0. The same Gaussian steps, composed in Renyi's terms, have .72 and .86 at delta = 1e-6.

The premise itself does not hold: see `CAVEAT`. A guarantee needs added noise: `server.privacy.answers`
(common/privacy/response_noise.py).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from colonnade.common.errors import InputError
from colonnade.common.privacy.accounting.accountant import renyi_epsilon

CAVEAT = (
    "not a guarantee: it takes the scatter of an estimate for Gaussian noise though parties know the directions that "
    "it comes from, measured numbers for bounds, and a row's share for 1/N although a batch has far fewer rows; it is "
    "about labels alone, and delta_bar is no smaller than T delta"
)


@dataclass(frozen=True)
class ZerothOrderClaim:
    """Theorem 4.1 for one run.

    Args:
        zeta: ζ, the largest L2 norm of the gradient at a party's outputs in the whole run.
        variance: σ², the mean variance of an entry of the estimate: tr(Ψ) / (q d_h) averaged over the steps.
        rows: N. The paper takes all training rows; a batch's rows are the cautious reading.
        turns: T, number of estimates sent.
        delta: δ of a step.
        delta_prime: δ', added by advanced composition.

    Raises InputError if a number is out of range.
    """

    zeta: float
    variance: float
    rows: int
    turns: int
    delta: float = 1e-6
    delta_prime: float = 1e-6

    @classmethod
    def of(cls, measured: Mapping[str, float], rows: int) -> ZerothOrderClaim | None:
        """The claim for a run's measurements; None where it is undefined, as with one direction.

        Args:
            measured: zeta, the sum of sigma^2 over sampled turns (`variance`), their number (`sampled`), and T
                (`turns`).
            rows: N.
        """
        if not (measured["variance"] > 0 and measured["zeta"] > 0):
            return None
        return cls(measured["zeta"], measured["variance"] / measured["sampled"], rows, int(measured["turns"]))

    def __post_init__(self) -> None:
        for name in ("zeta", "variance", "rows", "turns"):
            _require(name, getattr(self, name), "above 0 and finite", most=math.inf)
        for name in ("delta", "delta_prime"):
            _require(name, getattr(self, name), "above 0 and below 1", most=1.0)

    @property
    def epsilon(self) -> float:
        """ε of one step, Eq. 3. The underlying classical Gaussian mechanism proves nothing above 1."""
        return 2 * self.zeta * math.sqrt(2 * math.log(1.25 / self.delta)) / (self.rows * math.sqrt(self.variance))

    @property
    def epsilon_bar(self) -> float:
        """ε̄ of all steps, by Dwork and Roth's advanced composition."""
        return _composed(math.sqrt(self._root) * self.epsilon, self.turns, self.epsilon)

    @property
    def epsilon_bar_printed(self) -> float:
        """ε̄ in the printed form of the theorem and Table 2: with ε under the root."""
        return _composed(math.sqrt(self._root * self.epsilon), self.turns, self.epsilon)

    @property
    def delta_bar(self) -> float:
        """δ̄ = T δ + δ', at most 1: the probability without a guarantee."""
        return min(1.0, self.turns * self.delta + self.delta_prime)

    @property
    def epsilon_renyi(self) -> float:
        """ε of the same Gaussian steps at δ' instead of δ̄, composed in Renyi's terms."""
        sensitivity = 2 * self.zeta / self.rows
        return renyi_epsilon(sensitivity * math.sqrt(self.turns / self.variance), self.delta_prime)

    def report(self) -> dict[str, float | str]:
        """All values by name, for a summary, with their assumptions."""
        measured = ("zeta", "variance", "rows", "turns", "delta", "delta_prime")
        found = ("epsilon", "epsilon_bar", "epsilon_bar_printed", "delta_bar", "epsilon_renyi")
        return {**{name: getattr(self, name) for name in (*measured, *found)}, "caveat": CAVEAT}

    @property
    def _root(self) -> float:
        return 2 * self.turns * math.log(1 / self.delta_prime)


def _composed(root: float, turns: int, epsilon: float) -> float:
    """The root's term and T ε (e^ε - 1); infinite on overflow."""
    try:
        return root + turns * epsilon * math.expm1(epsilon)
    except OverflowError:
        return math.inf


def _require(name: str, value: float, expected: str, *, most: float) -> None:
    if not 0 < value < most:  # False for NaN too
        raise InputError(f"{name} = {value:g}: expected {expected}", hint="give what was measured in the run")
