"""`mechanism: gaussian`: client-level differential privacy of all of a party's data (Xie et al. 2024, Section V)."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from colonnade.common.config.privacy import PrivacyConfig
from colonnade.common.messaging.outgoing import Released
from colonnade.common.privacy.accounting.budget import Budget
from colonnade.common.privacy.accounting.plan import PrivacyPlan
from colonnade.common.privacy.noise import Normals, add_normals
from colonnade.common.privacy.release import once_in_words, shared, unpaid
from colonnade.common.privacy.sum_noise import NoiseShare


@dataclass(frozen=True)
class GaussianPlan(PrivacyPlan):
    config: PrivacyConfig

    @property
    def deviation(self) -> float:
        """sigma C."""
        return self.noise_multiplier * self.config.clip


class GaussianRelease:
    """Clips the whole matrix to C and adds N(0, (sigma C)^2) to every entry: Xie et al. 2024, Section V.

    Client-level DP for one party's whole data. `add_normals` rounds, so low bits reveal nothing.

    Args:
        plan: C, sigma and delta.
        share: adds the noise in place of `normals`, where a sum has it once.
    """

    def __init__(self, plan: GaussianPlan, normals: Normals, budget: Budget, share: NoiseShare | None = None) -> None:
        self._plan, self._normals, self._budget, self._share = plan, normals, budget, share
        seeded = " seeded" if plan.config.seeded else ""
        sigma, delta = f"{plan.noise_multiplier:g}", f"{plan.config.delta:g}"
        about = f"{plan.config.adjacency}{seeded}{once_in_words(plan)}"
        self._name = f"gaussian C={plan.config.clip:g} sigma={sigma} delta={delta} {about}"
        self._void = plan.void is not None

    def __call__(
        self,
        private: Tensor,
        *,
        evaluation: bool = False,
        rows: Tensor | None = None,  # noqa: ARG002  # part of the interface
    ) -> Released:
        """Releases a matrix in its dtype. Raises BudgetSpent."""
        if evaluation and self._plan.config.evaluate != "released":
            return unpaid(self._plan.config.evaluate, private)
        spent = self._budget.spend()
        clipped = clip_frobenius(private.detach().double(), self._plan.config.clip)
        epsilon = None if self._void else self._plan.epsilon(spent)
        if self._share is not None:
            return shared(self._share, clipped, private, self._name, epsilon)
        value = add_normals(clipped, self._plan.deviation, self._normals)
        return Released(value.to(private.dtype), self._name, epsilon)


def clip_frobenius(matrix: Tensor, threshold: float) -> Tensor:
    """A min(1, C / |A|_F): at most C in the Frobenius norm, in the matrix's shape and dtype.

    Entries that are not finite count as 0: noise would not hide them.
    """
    matrix = matrix.nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)
    norm = float(matrix.norm())
    return matrix * (threshold / max(norm, threshold))


def through_clip(matrix: Tensor, threshold: float, gradient: Tensor) -> Tensor:
    """Gradient of a loss at a matrix, given that at `clip_frobenius` of it; all of the matrix's shape."""
    norm = float(matrix.norm())
    if norm <= threshold:
        return gradient
    along = float((matrix * gradient).sum()) / norm**2
    return (gradient - along * matrix) * (threshold / norm)
